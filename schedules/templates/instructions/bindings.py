"""Values that are bound to names: one for all reads of a stage's result, and none that the compiler writes out.

    y = s[i] · f(s[i])                            →    y = let r = s[i] in r · f(r)

A stage that is inlined takes the place of every read of its result, so n functions that read their argument twice
would be 2ⁿ long.

    y = let b = (let a = f(x) in g(a)) in h(b)    →    a[0] = f(x); b[0] = g(a[0]); y = h(b[0])

LLVM's writer in TVM simplifies every value that it binds, with what was bound before in place of its names. Three
``tanh`` in a row took 5 s, four more than a minute. It does not know what a buffer holds, and LLVM makes registers of
these.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad

from schedules.templates.common.structure import is_choice, nodes_below, renamed

LONGEST = 10_000
"""Names in a stored value, written out, from which on what it binds is in memory. One function has up to a few hundred,
two have some 10,000 and compile in 0.1 s, three some 500,000. Heuristic."""

FLOATS = ("float16", "float32", "float64")

Row = list[tuple[tirx.Var, tirx.Expr]]
"""Names and what is bound to them, in order."""


def read_once(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` with a name for each element of another stage's result that a stage reads several times."""

    def named(block: s_tir.SBlock) -> s_tir.SBlock:
        store = block.body
        if not isinstance(store, tirx.BufferStore):
            return block
        value = store.value
        for load in _repeated(value, func.params):
            var = tirx.Var("r", load.ty.dtype)

            def replaced(other: TensorLoad, load: TensorLoad = load, var: tirx.Var = var) -> tirx.Expr:
                return var if tvm_ffi.structural_equal(other, load) else other

            value = tirx.Let(var, load, tvm_ffi.structural_map(value, (TensorLoad, replaced)))
        if value is store.value:
            return block
        body = tirx.BufferStore(store.buffer, value, store.indices)
        return s_tir.SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, body, block.init, annotations=block.annotations
        )

    return tvm_ffi.structural_map(func, (s_tir.SBlock, named), order="post")


def _repeated(value: tirx.Expr, params: Sequence[tirx.Var]) -> list[TensorLoad]:
    """Reads of stages' results that are in ``value`` more than once, and not only where a choice may leave them out."""
    if any(map(is_choice, nodes_below(value, Call))):
        return []
    repeated, seen = list[TensorLoad](), list[TensorLoad]()
    for load in nodes_below(value, TensorLoad):
        if str(load.ty.dtype) not in FLOATS or any(load.source.same_as(param) for param in params):
            continue
        if not any(tvm_ffi.structural_equal(load, other) for other in seen):
            seen.append(load)
        elif not any(tvm_ffi.structural_equal(load, other) for other in repeated):
            repeated.append(load)
    return repeated


def bound_in_memory(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func``, lowered and of vectors, with what long values bind in buffers."""

    def stored(store: tirx.BufferStore) -> tirx.Stmt:
        row: Row = []
        value = _Straight(row).of(store.value)
        if _written_out([*row, (store.buffer, value)]) <= LONGEST or any("bool" in str(var.ty.dtype) for var, _ in row):
            return store
        steps, held = list[tirx.Stmt](), dict[tirx.Var, tirx.Expr]()

        for var, bound in row:
            buffer, first = tirx.decl_buffer((1,), var.ty.dtype, var.name), [tirx.const(0, "int32")]
            steps += [tirx.AllocBuffer(buffer), tirx.BufferStore(buffer, renamed(bound, held), first)]
            held[var] = tirx.BufferLoad(buffer, first)
        return tirx.SeqStmt([*steps, tirx.BufferStore(store.buffer, renamed(value, held), store.indices)])

    return tvm_ffi.structural_map(func, (tirx.BufferStore, stored), order="post")


def _written_out(row: Row) -> int:
    """Mentions of names in the last value, with every bound value in place of its name."""
    sizes: dict[tirx.Var, int] = {}
    for var, bound in row:
        sizes[var] = sum(sizes.get(name, 1) for name in nodes_below(bound, tirx.Var))
    return sizes[row[-1][0]]


class _Straight:
    """Takes bindings out of a value, whether or not they are within each other.

    Args:
        row: where they are added, each under a name of its own.
    """

    def __init__(self, row: Row) -> None:
        self._row = row
        self._names: dict[tirx.Var, tirx.Var] = {}

    def of(self, value: tirx.Expr) -> tirx.Expr:
        """``value`` without its bindings."""
        return tvm_ffi.structural_mutate(
            value, [(tirx.Let, self._taken), (Call, self._called), (tirx.Var, self._renamed)]
        )

    def _taken(self, let: tirx.Let, _: object) -> tirx.Expr:
        bound, before = self.of(let.value), self._names.get(let.var)
        self._names[let.var] = tirx.Var(let.var.name, let.var.ty.dtype)
        self._row.append((self._names[let.var], bound))
        body = self.of(let.body)
        if before is None:
            del self._names[let.var]
        else:
            self._names[let.var] = before
        return body

    def _called(self, call: Call, mutator: tvm_ffi.StructuralMutator) -> tirx.Expr:
        """A choice keeps what its values bind if they read tensors, for they may read what is not there."""
        if not is_choice(call) or not any(nodes_below(value, TensorLoad) for value in call.args[1:]):
            return mutator.default_mutate(call)
        values = (renamed(value, self._names) for value in call.args[1:])
        return tirx.if_then_else(self.of(call.args[0]), *values)

    def _renamed(self, var: tirx.Var, _: object) -> tirx.Var:
        return self._names.get(var, var)
