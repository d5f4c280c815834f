"""The rules of docs and design as functions: a source tree in, sentences about what breaks a rule out.

A tree is ``{path relative to the repository: source text}``; every rule takes one and returns its violations, so that
each can be shown to fail on a small bad tree.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

Tree = Mapping[str, str]

ROOMS = ("schedules", "tuning_logs", "costmodels", "search", "autotune")
"""From right to left: a room imports itself and the rooms before it."""

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80

HOMES = {
    "tvm": ("schedules/templates/", "schedules/lower.py", "costmodels/program_features.py", "autotune/"),
    "tvm_ffi": ("schedules/templates/", "schedules/lower.py", "costmodels/program_features.py", "autotune/"),
    "skopt": ("costmodels/", "search/bayesian.py"),
    "sklearn": ("costmodels/", "search/bayesian.py"),
    "xgboost": ("costmodels/boosted.py",),
}
"""Where a library may be imported."""

EFFECTS = frozenset(
    {"asyncio", "concurrent", "datetime", "fcntl", "glob", "io", "mmap", "multiprocessing", "os", "pathlib", "pickle"}
    | {"psutil", "resource", "select", "shelve", "shutil", "signal", "socket", "sqlite3", "subprocess", "tempfile"}
    | {"threading", "time", "urllib"}
)
"""Modules of clocks, files and processes."""
EFFECT_ROOMS = ("autotune", "tuning_logs")

OPTIONAL = frozenset({"cuda", "onnxruntime", "openvino", "optuna", "psycopg", "ray"})
"""Packages of the extras: imported where they are used."""

BANNED_WORDS = frozenset({"util", "utils", "helper", "helpers", "manager", "managers", "scheduler", "schedulers"})


@functools.lru_cache(maxsize=1024)
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def library(tree: Tree) -> Iterator[tuple[str, ast.Module]]:
    """The sources of the five rooms."""
    for path, source in tree.items():
        if path.split("/")[0] in ROOMS:
            yield path, parsed(source)


def imports(path: str, nodes: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """Every imported module below a node, absolute; for ``from a import b`` both ``a`` and ``a.b``."""
    package = PurePosixPath(path).parent.parts
    for node in ast.walk(nodes):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            base = ".".join((*package[: len(package) - node.level + 1], *filter(None, [node.module])))
            module = base if node.level else node.module or ""
            yield module, node
            for alias in node.names:
                yield f"{module}.{alias.name}", node


def import_direction(tree: Tree) -> list[str]:
    """A room imports only itself and rooms to its right; nobody imports the tests."""
    found = []
    for path, module in library(tree):
        room = path.split("/")[0]
        for name, node in imports(path, module):
            other = name.split(".")[0]
            wrong_room = other in ROOMS and ROOMS.index(other) > ROOMS.index(room)
            if wrong_room or other == "tests":
                found.append(f"{path}:{node.lineno} imports {name}, which lies to the left of {room}")
    return found


def library_homes(tree: Tree) -> list[str]:
    """TVM, scikit-optimize and XGBoost are imported only in their homes."""
    return [
        f"{path}:{node.lineno} imports {name}; only {', '.join(HOMES[name.split('.')[0]])} may"
        for path, module in library(tree)
        for name, node in imports(path, module)
        if name.split(".")[0] in HOMES and not path.startswith(HOMES[name.split(".")[0]])
    ]


def pure_rooms(tree: Tree) -> list[str]:
    """No clock, file or process outside ``EFFECT_ROOMS``."""
    found = []
    for path, module in library(tree):
        if path.split("/")[0] in EFFECT_ROOMS:
            continue
        for name, node in imports(path, module):
            if name.split(".")[0] in EFFECTS:
                found.append(f"{path}:{node.lineno} imports {name}: no clocks, files or processes here")
        found += [
            f"{path}:{call.lineno} calls {call.id}(): no clocks, files or processes here"
            for call in calls(module)
            if call.id in ("open", "input")
        ]
    return found


def calls(module: ast.Module) -> Iterator[ast.Name]:
    """Plain names that are called."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func


def environment(tree: Tree) -> list[str]:
    """Environment variables are touched only in the CLI."""
    names = {"environ", "environb", "getenv", "getenvb", "putenv"}
    found = []
    for path, module in library(tree):
        if path == "autotune/cli/main.py":
            continue
        found += [
            f"{path}:{node.lineno} uses os.{node.attr}; read it in autotune/cli/main.py and pass it on"
            for node in ast.walk(module)
            if isinstance(node, ast.Attribute) and node.attr in names
        ]
        found += [
            f"{path}:{node.lineno} imports {name}; read it in autotune/cli/main.py and pass it on"
            for name, node in imports(path, module)
            if name.split(".")[0] == "os" and name.split(".")[-1] in names
        ]
    return found


def printing(tree: Tree) -> list[str]:
    """Only the CLI prints."""
    return [
        f"{path}:{name.lineno} calls {name.id}(); log it, or return it to autotune/cli/main.py"
        for path, module in library(tree)
        for name in calls(module)
        if name.id in ("print", "pprint") and path != "autotune/cli/main.py"
    ]


def sizes(tree: Tree) -> list[str]:
    """Files and functions stay short, in the tests too."""
    found = []
    for path, source in tree.items():
        lines = source.count("\n")
        if lines > MAX_FILE_LINES:
            found.append(f"{path} has {lines} lines, more than {MAX_FILE_LINES}")
        for node in ast.walk(parsed(source)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    found.append(f"{path}:{node.lineno} {node.name} has {length} lines, more than {MAX_FUNCTION_LINES}")
    return found


def names_only(tree: Tree) -> list[str]:
    """An ``__init__.py`` holds a docstring, imports and assignments; the one function is a lazy ``__getattr__``."""
    found = []
    for path, module in library(tree):
        if not path.endswith("__init__.py"):
            continue
        for node in module.body:
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            names = isinstance(node, (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign))
            lazy = isinstance(node, ast.FunctionDef) and node.name in ("__getattr__", "__dir__")
            typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            if not (docstring or names or lazy or typing):
                found.append(f"{path}:{node.lineno} is more than names; move it into a module")
    return found


def local_imports(tree: Tree) -> list[str]:
    """An import inside a function is of an optional package, stands in a catalogue or the CLI, or says why.

    The reason is a comment on its line, above it, or above the function.
    """
    found = []
    for path, module in library(tree):
        if re.fullmatch(r"((\w+_)?catalog|__init__|cli(_\w+)?)\.py", PurePosixPath(path).name):
            continue  # catalogues and the CLI import only what was asked for, so that starting stays quick
        lines = tree[path].splitlines()
        for function in ast.walk(module):
            if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for name, node in imports(path, function):
                above = (lines[line - 2].lstrip() for line in (node.lineno, function.lineno))
                said = "#" in lines[node.lineno - 1] or any(line.startswith("#") for line in above)
                if name.split(".")[0] not in OPTIONAL and not said:
                    found.append(f"{path}:{node.lineno} {ast.unparse(node)}: move it up, or say why in a comment")
    return sorted(set(found))


def import_cycles(tree: Tree) -> list[str]:
    """Modules that import each other when they are loaded."""
    modules = {path: module_name(path) for path, _ in library(tree)}
    known = set(modules.values())
    edges = {
        modules[path]: {name for name, _ in imports(path, loaded_part(module))} & known - {modules[path]}
        for path, module in library(tree)
    }
    found: list[str] = []
    finished: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            found.append(" → ".join((*trail[trail.index(name) :], name)))
        elif name not in finished:
            for other in sorted(edges[name]):
                visit(other, (*trail, name))
            finished.add(name)

    for name in sorted(edges):
        visit(name, ())
    return found


def module_name(path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def loaded_part(module: ast.Module) -> ast.Module:
    """The module without function bodies and what only type checkers see."""

    class Strip(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            return None

        def visit_If(self, node: ast.If) -> ast.AST | None:
            return None if ast.unparse(node.test).endswith("TYPE_CHECKING") else self.generic_visit(node)

    stripped: ast.Module = Strip().visit(ast.parse(ast.unparse(module)))
    return stripped


def names(tree: Tree) -> list[str]:
    """No module, class or function is called a util, helper, manager or scheduler."""
    found = []
    for path, module in library(tree):
        found += [
            f"{path}: {word!r} says nothing; name what it does" for word in words(module_name(path)) & BANNED_WORDS
        ]
        for node in ast.walk(module):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                found += [
                    f"{path}:{node.lineno} {node.name}: {word!r} says nothing; name what it does"
                    for word in words(node.name) & BANNED_WORDS
                ]
    return found


def words(name: str) -> set[str]:
    """The words of a snake_case, dotted or CamelCase name, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def unfinished(tree: Tree) -> list[str]:
    """No unfinished marks, no swallowed exceptions."""
    found = []
    for path, module in library(tree):
        for number, line in enumerate(tree[path].splitlines(), start=1):
            if re.search(r"#.*\b(TODO|FIXME|XXX)\b", line):
                found.append(f"{path}:{number} is unfinished; finish it")
        for node in ast.walk(module):
            wide = isinstance(node, ast.ExceptHandler) and (
                node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
            )
            if wide and all(isinstance(step, (ast.Pass, ast.Continue)) for step in node.body):  # type: ignore[attr-defined]
                found.append(f"{path}:{node.lineno} swallows every exception; name the ones you expect")  # type: ignore[attr-defined]
    return found


RULES = (
    import_direction,
    library_homes,
    pure_rooms,
    environment,
    printing,
    sizes,
    names_only,
    local_imports,
    import_cycles,
    names,
    unfinished,
)
