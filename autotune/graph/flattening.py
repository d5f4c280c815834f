"""Relax programs as graphs of kernel calls (``flat.py``) and as steps (``steps.py``)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from autotune.graph.arena import Slice
from autotune.graph.flat import Flat, FlatCall, Place, Source, Use
from autotune.graph.lanes import cpu_lane
from autotune.graph.sides import guard_sides
from autotune.graph.steps import WHOLE, Piece, Steps, arrange
from schedules.vocabulary.errors import ModelError, first_line

if TYPE_CHECKING:  # loads ONNX and the importer
    from autotune.importer.program import Program


def flatten(
    program: Program,
    concats: Mapping[str, int],
    workspaces: Mapping[str, int] | None = None,
    choices: Collection[str] = (),
) -> Steps:
    """``program`` as steps on one lane.

    Args:
        program: as ``apply_plan`` made it.
        concats: symbol of every kernel that only concatenates → axis.
        workspaces: symbol of every kernel that asks for memory while it runs → bytes.
        choices: symbols of kernels that only choose between two tensors.

    Raises:
        ModelError: as ``read_flat``.
    """
    flat = guard_sides(read_flat(program, concats), choices)
    whole = Piece(WHOLE, tuple(range(len(flat.calls))), 0)
    steps = arrange({1: flat}, [whole], (cpu_lane(0, 1),), workspaces)
    return replace(steps, lanes=(), groups=())


def read_flat(program: Program, concats: Mapping[str, int]) -> Flat:
    """``program`` as a graph of calls.

    Args:
        program: as ``apply_plan`` made it.
        concats: symbol of every kernel that only concatenates → axis.

    Raises:
        ModelError: if it holds anything but calls of kernels of one output each, of fixed shapes.
    """
    return _Reader(program).flat(concats)


def _no_call(what: object) -> ModelError:
    return ModelError(f"the model became a program that does not only call kernels: {first_line(what)}; report it")


class _Reader:
    def __init__(self, program: Program) -> None:
        self._main = program.main
        self._weights = list(program.weights)
        inputs = int(self._main.attrs["num_input"])
        self._sources: dict[relax.Var, Source] = {}
        for number, param in enumerate(self._main.params):
            place: Place = "input" if number < inputs else "weight"
            self._sources[param] = Source(place, number if number < inputs else number - inputs)
        self._tuples: dict[relax.Var, list[relax.Expr]] = {}
        self._calls: list[FlatCall] = []

    def flat(self, concats: Mapping[str, int]) -> Flat:
        for block in self._main.body.blocks:
            for binding in block.bindings:
                self._binding(binding.var, binding.value)
        outputs = tuple(self._use(field) for field in self._fields(self._main.body.body))
        if any(use.source.place != "arena" for use in outputs):
            raise _no_call("an output is an input or a weight")  # ``layouts/own_outputs.py`` copies those
        slices, removed = self._in_place(concats)
        return Flat(tuple(self._calls), outputs, slices, frozenset(removed), tuple(self._weights))

    def _binding(self, var: relax.Var, expr: relax.Expr) -> None:
        if isinstance(expr, relax.Var):
            self._alias(var, expr)
        elif isinstance(expr, relax.Tuple):
            self._tuples[var] = list(expr.fields)
        elif isinstance(expr, relax.TupleGetItem):
            self._alias(var, self._fields(expr.tuple_value)[expr.index])
        elif isinstance(expr, relax.Call):
            self._call(var, expr)
        else:
            raise _no_call(expr)

    def _alias(self, var: relax.Var, expr: relax.Expr) -> None:
        if isinstance(expr, relax.Var) and expr in self._tuples:
            self._tuples[var] = self._tuples[expr]
        else:
            self._sources[var] = self._source(expr)

    def _call(self, var: relax.Var, call: relax.Call) -> None:
        name = str(getattr(call.op, "name", ""))
        if name == "relax.reshape":
            self._alias(var, call.args[0])
            return
        if name != "relax.call_dps_packed" or len(call.ty_args) != 1:
            raise _no_call(call)
        symbol = str(call.args[0].global_symbol)
        arguments = tuple(self._use(field) for field in call.args[1].fields)
        shape, dtype = _typed(var)
        self._sources[var] = Source("arena", len(self._calls))
        self._calls.append(FlatCall(symbol, arguments, shape, dtype))

    def _fields(self, expr: relax.Expr) -> list[relax.Expr]:
        if isinstance(expr, relax.Tuple):
            return list(expr.fields)
        if isinstance(expr, relax.Var) and expr in self._tuples:
            return self._tuples[expr]
        return [expr]

    def _source(self, expr: relax.Expr) -> Source:
        if isinstance(expr, GenericConst):
            self._weights.append(np.ascontiguousarray(expr.value.numpy()))
            return Source("weight", len(self._weights) - 1)
        if isinstance(expr, relax.Var) and expr in self._sources:
            return self._sources[expr]
        raise _no_call(expr)

    def _use(self, expr: relax.Expr) -> Use:
        return Use(self._source(expr), *_typed(expr))

    def _in_place(self, concats: Mapping[str, int]) -> tuple[dict[int, Slice], set[int]]:
        """Return where parts of concatenations lie in what they make, and the concatenations that vanish."""
        removed: set[int] = set()
        slices: dict[int, Slice] = {}
        for number, call in enumerate(self._calls):
            axis = concats.get(call.symbol)
            if axis is None or math.prod(call.shape[:axis]) != 1:
                continue
            parts = [use.source.index for use in call.arguments if use.source.place == "arena"]
            if len(set(parts)) != len(call.arguments) or any(part in slices for part in parts):
                continue
            offset = 0
            for part in parts:
                slices[part] = Slice(number, offset)
                offset += self._calls[part].bytes
            removed.add(number)
        return slices, removed


def _typed(expr: relax.Expr) -> tuple[tuple[int, ...], str]:
    ty = expr.ty
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        raise _no_call(expr)
    try:
        return tuple(int(extent) for extent in ty.shape), str(ty.dtype)
    except TypeError as error:
        raise _no_call(expr) from error
