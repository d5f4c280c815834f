"""The types that the JSON of a program from elsewhere may consist of.

TVM makes an object of any registered type that a JSON text names, and some types look functions up or load code while
they are made. A program needs statements, expressions, types and attributes. So its text is read against a list of
types before TVM sees it.
"""

from __future__ import annotations

import re

from schedules.vocabulary.bounded import parsed_json
from schedules.vocabulary.errors import ScheduleError, check

MOST_BYTES = 16 * 1024 * 1024
"""Longest text of a program. The largest seen takes 3 MB; heuristic."""

_DEPTH = 8
_PLAIN = frozenset({"None", "int", "bool", "float", "DataType", "ffi.String", "ffi.Array", "ffi.Map"})
_PROGRAM = _PLAIN | {
    *("ir.PrimType", "ir.TupleType", "ir.PointerType", "ir.FuncType", "ir.Type"),
    *("ir.IntImm", "ir.FloatImm", "ir.StringImm", "ir.Var", "ir.Call", "ir.Op", "ir.GlobalVar", "ir.Range"),
    *("ir.TensorRegion", "ir.TensorLoad", "ir.Tuple", "ir.TupleGetItem", "ir.DictAttrs", "ir.IRModule"),
    *("ir.Span", "ir.SequentialSpan", "ir.SourceName", "ir.SourceMap", "ir.Source"),
    *("relax.ShapeType", "relax.TensorType", "relax.FuncType", "relax.ObjectType", "relax.expr.ShapeExpr"),
    *("s_tir.SBlock", "s_tir.SBlockRealize", "s_tir.MatchBufferRegion"),
}
_EXPRESSION = re.compile(r"(prim|tirx)\.[A-Za-z]{1,40}")
"""Arithmetic and statements; none of them does more than hold its fields."""

_INDEX_MAP = _PLAIN | {"ir.PrimType", "ir.IntImm", "ir.Var", "tirx.IndexMap"}


def check_program(text: str) -> None:
    """Check the JSON text of a program, without TVM.

    Raises:
        ScheduleError: if it is no such text, or names a type that no program needs.
    """
    for kind in _types(text):
        check(kind in _PROGRAM or _EXPRESSION.fullmatch(kind), f"a program holds no {ascii(kind)[:60]}")


def check_index_map(text: str) -> None:
    """Check the JSON text of a map of indices, as an instruction that changes a layout holds it.

    Raises:
        ScheduleError: if it is no such text, or names a type that no such map needs.
    """
    for kind in _types(text):
        arithmetic = kind.startswith("prim.") and _EXPRESSION.fullmatch(kind)
        check(kind in _INDEX_MAP or arithmetic, f"a map of indices holds no {ascii(kind)[:60]}")


def _types(text: str) -> set[str]:
    """The types that the JSON text of an object graph names."""
    check(len(text) <= MOST_BYTES, f"it has more than {MOST_BYTES >> 20} MiB")
    try:
        data = parsed_json(text, _DEPTH)
    except ValueError as error:
        raise ScheduleError(f"it is not JSON: {error}") from error
    nodes = data.get("nodes") if isinstance(data, dict) else None
    check(isinstance(nodes, list) and nodes, "it is not the JSON of a program")
    assert isinstance(nodes, list)
    kinds = [node.get("type") if isinstance(node, dict) else None for node in nodes]
    named = {kind for kind in kinds if isinstance(kind, str)} if all(isinstance(kind, str) for kind in kinds) else set()
    check(named, "it has parts without a type")
    return named
