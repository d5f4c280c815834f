"""Faults in the library's own sources, drawn from its syntax trees by a seed."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle

FLIPPED: Mapping[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
}
"""Comparison → the one it is mistaken for."""


@dataclass(frozen=True)
class Fault:
    """A wrong expression in one file.

    Attributes:
        path: the file, relative to the repository.
        line: of the expression, from 1.
        kind: flipped comparison, off by one, dropped branch or swapped arguments.
        before, after: the expression and what replaces it.
        start: bytes of the file before the expression.
    """

    path: str
    line: int
    kind: str
    before: str
    after: str
    start: int

    def __str__(self) -> str:
        short = (" ".join(text.split())[:60] for text in (self.before, self.after))
        return f"{self.path}:{self.line}: {self.kind}: {' -> '.join(short)}"

    def applied(self, source: str) -> str:
        """Return the file with the fault."""
        text = source.encode()
        end = self.start + len(self.before.encode())
        return (text[: self.start] + f"({self.after})".encode() + text[end:]).decode()


def places_of(source: str) -> list[tuple[str, ast.expr]]:
    """Return (kind, node) of every fault that a file can have."""
    return [place for node in _nodes(ast.parse(source)) for place in _kinds(node)]


def fault_at(path: str, source: str, kind: str, node: ast.expr) -> Fault:
    """Return the fault of this kind at a node of ``places_of``."""
    text = source.encode()
    lines = [0, *accumulate(map(len, text.splitlines(keepends=True)))]
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    start = lines[node.lineno - 1] + node.col_offset
    end = lines[node.end_lineno - 1] + node.end_col_offset
    return Fault(path, node.lineno, kind, text[start:end].decode(), ast.unparse(_wrong(kind, node)), start)


def chosen(tree: Mapping[str, str], count: int, seed: int) -> list[Fault]:
    """Draw ``count`` faults, one of each folder in turn, of a kind that is drawn first so that none is rare.

    Args:
        tree: path relative to the repository → source, the library alone.
    """
    rng = random.Random(seed)
    folders: dict[str, dict[str, list[tuple[str, ast.expr]]]] = {}
    for path in sorted(tree):
        for kind, node in places_of(tree[path]):
            folders.setdefault(path.rpartition("/")[0], {}).setdefault(kind, []).append((path, node))
    order = sorted(folders)
    rng.shuffle(order)
    faults: list[Fault] = []
    for folder in cycle(order):
        if len(faults) == count:
            break
        kind = rng.choice(sorted(folders[folder]))
        path, node = rng.choice(folders[folder][kind])
        fault = fault_at(path, tree[path], kind, node)
        if fault not in faults:
            faults.append(fault)
    return faults


def _nodes(module: ast.Module) -> Iterator[ast.AST]:
    """The bodies of functions: no signatures, messages or texts, whose faults no test need find."""
    waiting: list[ast.AST] = [
        statement
        for function in ast.walk(module)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in function.body
    ]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))


def _kinds(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """(Kind, what is replaced) of every fault of one node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield "flipped comparison", node
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield "off by one", node
    if isinstance(node, ast.If):
        yield "dropped branch", node.test
    if isinstance(node, ast.Call) and _differ(node.args):
        yield "swapped arguments", node


def _wrong(kind: str, node: ast.expr) -> ast.expr:
    """The expression instead."""
    if kind == "flipped comparison":
        assert isinstance(node, ast.Compare)
        return ast.Compare(node.left, [FLIPPED[type(node.ops[0])]], node.comparators)
    if kind == "off by one":
        assert isinstance(node, ast.Constant)
        assert isinstance(node.value, int)
        return ast.Constant(node.value + 1)
    if kind == "dropped branch":
        return ast.Constant(False)
    assert isinstance(node, ast.Call)
    first, second, *others = node.args
    return ast.Call(node.func, [second, first, *others], node.keywords)


def _differ(arguments: Sequence[ast.expr]) -> bool:
    """Whether there are two positional arguments that can be swapped."""
    return (
        len(arguments) >= 2
        and not any(isinstance(argument, ast.Starred) for argument in arguments)
        and ast.dump(arguments[0]) != ast.dump(arguments[1])
    )
