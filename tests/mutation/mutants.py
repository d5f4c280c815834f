"""A scheduled program → the same with one mistake, of the kinds that a wrong schedule or template makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, s_tir, tirx

Change = Callable[[Any], Any]


def _is_float(expr: Any) -> bool:
    return str(expr.ty.dtype).startswith("float")


def _is_number(expr: Any) -> bool:
    """Whether an expression is no index: those are int64 before a program is lowered."""
    return _is_float(expr) or str(expr.ty.dtype).startswith("int32")


def _inside_stores(func: tirx.PrimFunc, kind: type, change: Change) -> tirx.PrimFunc:
    """Apply ``change`` to the nodes of a class in what is stored; the declared regions stay as they are."""

    def store(node: tirx.BufferStore) -> tirx.BufferStore:
        value = tvm_ffi.structural_map(node.value, (kind, change))
        return tirx.BufferStore(node.buffer, value, list(node.indices))

    return tvm_ffi.structural_map(func, (tirx.BufferStore, store))


def _constant(node: tirx.FloatImm) -> Any:
    return tirx.FloatImm(str(node.ty.dtype), node.value * 0.9 if node.value else 0.1)


def _subtract(node: tirx.Add) -> Any:
    return tirx.Sub(node.a, node.b) if _is_number(node) else None


def _add(node: tirx.Sub) -> Any:
    return tirx.Add(node.a, node.b) if _is_number(node) else None


def _no_product(node: tirx.Mul) -> Any:
    return tirx.Add(node.a, node.b) if _is_float(node) else None


def _saturated(node: ir.Call) -> Any:
    """A dot product of bytes whose own sum is cut to 16 bits before it is added, as ``vpmaddubsw`` cuts pairs."""
    dtype = str(getattr(node.ty, "dtype", ""))  # an address has none
    is_call = str(getattr(node.op, "name", "")) == "tirx.call_pure_extern" and dtype.startswith("int32x")
    if not is_call or not str(node.args[0].value).startswith("tune_dot"):
        return None
    lanes = int(dtype.partition("x")[2])

    def spread(value: int) -> Any:
        return tirx.Broadcast(tirx.const(value, "int32"), lanes)

    alone = tirx.call_pure_extern(dtype, node.args[0].value, spread(0), *node.args[2:])
    return node.args[1] + tirx.Max(tirx.Min(alone, spread(2**15 - 1)), spread(-(2**15)))


def _smaller(node: tirx.Max) -> Any:
    return tirx.Min(node.a, node.b)


def _larger(node: tirx.Min) -> Any:
    return tirx.Max(node.a, node.b)


def _other_branch(node: Any) -> Any:
    if isinstance(node, tirx.Select):
        return tirx.Select(node.condition, node.false_value, node.true_value)
    if str(getattr(node.op, "name", "")).endswith("if_then_else"):
        return tirx.if_then_else(node.args[0], node.args[2], node.args[1])
    return None


def _no_branch(node: Any) -> Any:
    """The guarded value unguarded, if that reads nothing outside: else the other value."""
    if isinstance(node, tirx.Select):
        return node.false_value
    return node.args[2] if str(getattr(node.op, "name", "")).endswith("if_then_else") else None


def _strict(node: Any) -> Any:
    return tirx.LT(node.a, node.b) if isinstance(node, tirx.LE) else tirx.LE(node.a, node.b)


def _shifted(step: int) -> Change:
    def change(node: ir.TensorLoad) -> Any:
        """One axis read a step further, kept within the tensor."""
        extents = [int(extent) for extent in node.source.ty.shape]
        long = [axis for axis, extent in enumerate(extents) if extent > 1]
        if not long:
            return None
        axis = long[-1] if step > 0 else long[0]
        indices = list(node.indices)
        last = tirx.const(extents[axis] - 1, indices[axis].ty.dtype)
        zero = tirx.const(0, indices[axis].ty.dtype)
        moved = indices[axis] + step
        indices[axis] = tirx.Min(moved, last) if step > 0 else tirx.Max(moved, zero)
        return tirx.BufferLoad(node.source, indices)

    return change


def _dropped_sum(node: tirx.BufferStore) -> Any:
    """C = C + x → C = x: what was summed so far is lost."""
    for mine, other in _sides(node.value):
        if _reads(mine, node.buffer):
            return tirx.BufferStore(node.buffer, other, list(node.indices))
    return None


def _dropped_term(node: tirx.BufferStore) -> Any:
    """C = C + x → C = C."""
    for mine, _ in _sides(node.value):
        if _reads(mine, node.buffer):
            return tirx.BufferStore(node.buffer, mine, list(node.indices))
    return None


def _sides(value: Any) -> list[tuple[Any, Any]]:
    return [(value.a, value.b), (value.b, value.a)] if isinstance(value, (tirx.Add, tirx.Max, tirx.Min)) else []


def _reads(expr: Any, buffer: Any) -> bool:
    return isinstance(expr, ir.TensorLoad) and expr.source.same_as(buffer)


def _no_store(node: tirx.BufferStore) -> Any:
    return tirx.Evaluate(tirx.const(0, "int32"))


def _short_loop(node: tirx.For) -> Any:
    """The last iteration is left out."""
    if not isinstance(node.extent, tirx.IntImm) or node.extent.value < 2 or node.kind == tirx.ForKind.VECTORIZED:
        return None
    return _loop(node, tirx.const(node.extent.value - 1, node.extent.ty.dtype))


def _half_vector(node: tirx.For) -> Any:
    """Half of a vector is left out."""
    if node.kind != tirx.ForKind.VECTORIZED or not isinstance(node.extent, tirx.IntImm) or node.extent.value % 2:
        return None
    return _loop(node, tirx.const(node.extent.value // 2, node.extent.ty.dtype))


def _loop(node: tirx.For, extent: Any) -> tirx.For:
    return tirx.For(
        node.loop_var, node.min, extent, node.kind, node.body, node.thread_binding, node.annotations, node.step
    )


def _one_thread_late(node: tirx.For) -> Any:
    """A parallel loop starts at 1: the first share is nobody's."""
    if node.kind != tirx.ForKind.PARALLEL or not isinstance(node.extent, tirx.IntImm) or node.extent.value < 2:
        return None
    one = tirx.const(1, node.extent.ty.dtype)
    return tirx.For(node.loop_var, one, tirx.const(node.extent.value - 1, node.extent.ty.dtype), node.kind, node.body)


def _no_start(node: s_tir.SBlock) -> Any:
    """Sums start from whatever is there."""
    if node.init is None:
        return None
    return s_tir.SBlock(
        node.iter_vars,
        node.reads,
        node.writes,
        node.name_hint,
        node.body,
        None,
        node.alloc_buffers,
        node.match_buffers,
        node.annotations,
    )


STORED: dict[str, tuple[Any, Change]] = {
    "constant": (tirx.FloatImm, _constant),
    "add to subtract": (tirx.Add, _subtract),
    "subtract to add": (tirx.Sub, _add),
    "product to sum": (tirx.Mul, _no_product),
    "sum saturates": (ir.Call, _saturated),
    "max to min": (tirx.Max, _smaller),
    "min to max": (tirx.Min, _larger),
    "branches swapped": ((tirx.Select, ir.Call), _other_branch),
    "branch lost": ((tirx.Select, ir.Call), _no_branch),
    "bound off by one": ((tirx.LT, tirx.LE), _strict),
    "read one further": (ir.TensorLoad, _shifted(1)),
    "read one before": (ir.TensorLoad, _shifted(-1)),
}
"""Mistakes in what is stored."""

STATEMENTS: dict[str, tuple[Any, Change]] = {
    "sum lost": (tirx.BufferStore, _dropped_sum),
    "term lost": (tirx.BufferStore, _dropped_term),
    "nothing stored": (tirx.BufferStore, _no_store),
    "last iteration lost": (tirx.For, _short_loop),
    "half a vector lost": (tirx.For, _half_vector),
    "first share lost": (tirx.For, _one_thread_late),
    "sum not started": (s_tir.SBlock, _no_start),
}
"""Mistakes in loops and stores."""

KINDS = (*STORED, *STATEMENTS)


@dataclass(frozen=True)
class Mutant:
    """One mistake: its kind, and which of the places where it can be made."""

    kind: str
    place: int


def places(func: tirx.PrimFunc, kind: str) -> int:
    """In how many places of ``func`` the mistake can be made."""
    return _visit(func, kind, -1)[1]


def mutate(func: tirx.PrimFunc, mutant: Mutant) -> tirx.PrimFunc:
    """``func`` with the mistake."""
    return _visit(func, mutant.kind, mutant.place)[0]


def random_mutant(func: tirx.PrimFunc, rng: np.random.Generator) -> Mutant:
    """Any kind that fits alike, then any of its places."""
    counts = {kind: places(func, kind) for kind in KINDS}
    fitting = [kind for kind in KINDS if counts[kind]]
    kind = fitting[int(rng.integers(len(fitting)))]
    return Mutant(kind, int(rng.integers(counts[kind])))


def _visit(func: tirx.PrimFunc, kind: str, wanted: int) -> tuple[tirx.PrimFunc, int]:
    """``func`` with place ``wanted`` changed, and the number of places."""
    seen = 0
    node_type, change = STORED.get(kind) or STATEMENTS[kind]

    def visit(node: Any) -> Any:
        nonlocal seen
        changed = change(node)
        if changed is None:
            return node
        seen += 1
        return changed if seen - 1 == wanted else node

    if kind in STORED:
        return _inside_stores(func, node_type, visit), seen
    return tvm_ffi.structural_map(func, (node_type, visit)), seen
