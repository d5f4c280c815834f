"""A specialised program as a flat list of kernel calls on one arena: nothing is left to interpret at run time.

Only programs of kernel calls, reshapes and tuples are flat; others (data-dependent shapes, sorting) run on the Relax
virtual machine. Concatenations along the outermost axis longer than one disappear: their parts are written in place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import GenericConst

from autotune.graph.memory import Life, Slice, plan_memory
from autotune.importer.program import Program

Place = Literal["input", "weight", "arena"]


@dataclass(frozen=True)
class Operand:
    """One argument of a kernel.

    Attributes:
        place: where it lies.
        index: number of the input or weight; byte offset in the arena.
    """

    place: Place
    index: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Step:
    """One kernel call: the last operand is written."""

    symbol: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Steps:
    """A flat program.

    Attributes:
        calls: in order.
        outputs: where the model's outputs lie after the last call.
        arena_bytes: size of the arena.
        weights: the program's weights, then the constants that its calls hold.
    """

    calls: tuple[Step, ...]
    outputs: tuple[Operand, ...]
    arena_bytes: int
    weights: tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class _Source:
    """A tensor of the program: an input, a weight, or what step ``index`` wrote."""

    place: Place
    index: int


class _UnflatError(Exception):
    """The program holds something that is not a kernel call."""


def flatten(program: Program, concats: Mapping[str, int]) -> Steps | None:
    """``program`` as steps, or None if it is not flat.

    Args:
        program: as ``specialise`` made it.
        concats: symbol of every kernel that only concatenates → axis.
    """
    try:
        return _Flattener(program, concats).steps()
    except _UnflatError:
        return None


class _Flattener:
    def __init__(self, program: Program, concats: Mapping[str, int]) -> None:
        self._main = program.module["main"]
        self._concats = concats
        self._weights = list(program.weights)
        inputs = len(program.inputs)
        self._sources: dict[relax.Var, _Source] = {}
        for number, param in enumerate(self._main.params):
            place: Place = "input" if number < inputs else "weight"
            self._sources[param] = _Source(place, number if number < inputs else number - inputs)
        self._tuples: dict[relax.Var, list[relax.Expr]] = {}
        self._calls: list[tuple[str, list[tuple[_Source, tuple[int, ...], str]], tuple[int, ...], str]] = []

    def steps(self) -> Steps:
        for block in self._main.body.blocks:
            for binding in block.bindings:
                self._binding(binding.var, binding.value)
        outputs = [self._operand(field) for field in self._fields(self._main.body.body)]
        if any(source.place != "arena" for source, _, _ in outputs):
            raise _UnflatError  # an input or a weight handed through: rare, and the machine does it right
        removed, slices = self._in_place(outputs)
        return self._planned(outputs, removed, slices)

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
            raise _UnflatError

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
            raise _UnflatError
        symbol = str(call.args[0].global_symbol)
        arguments = [self._operand(field) for field in call.args[1].fields]
        shape, dtype = _typed(var)
        self._sources[var] = _Source("arena", len(self._calls))
        self._calls.append((symbol, arguments, shape, dtype))

    def _fields(self, expr: relax.Expr) -> list[relax.Expr]:
        if isinstance(expr, relax.Tuple):
            return list(expr.fields)
        if isinstance(expr, relax.Var) and expr in self._tuples:
            return self._tuples[expr]
        return [expr]

    def _source(self, expr: relax.Expr) -> _Source:
        if isinstance(expr, GenericConst):
            self._weights.append(np.ascontiguousarray(expr.value.numpy()))
            return _Source("weight", len(self._weights) - 1)
        if isinstance(expr, relax.Var) and expr in self._sources:
            return self._sources[expr]
        raise _UnflatError

    def _operand(self, expr: relax.Expr) -> tuple[_Source, tuple[int, ...], str]:
        return (self._source(expr), *_typed(expr))

    def _in_place(self, outputs: list[tuple[_Source, tuple[int, ...], str]]) -> tuple[set[int], dict[int, Slice]]:
        """Concatenations that vanish, and where their parts lie in what they made."""
        removed: set[int] = set()
        slices: dict[int, Slice] = {}
        for number, (symbol, arguments, shape, _) in enumerate(self._calls):
            axis = self._concats.get(symbol)
            if axis is None or math.prod(shape[:axis]) != 1:
                continue
            parts = [source.index for source, _, _ in arguments if source.place == "arena"]
            if len(set(parts)) != len(arguments) or any(part in slices for part in parts):
                continue
            offset = 0
            for part in parts:
                slices[part] = Slice(number, offset)
                offset += self._bytes(part)
            removed.add(number)
        return removed, slices

    def _bytes(self, number: int) -> int:
        _, _, shape, dtype = self._calls[number]
        return math.prod(shape) * np.dtype(dtype).itemsize

    def _planned(
        self,
        outputs: list[tuple[_Source, tuple[int, ...], str]],
        removed: set[int],
        slices: dict[int, Slice],
    ) -> Steps:
        last = list(range(len(self._calls)))
        for number, (_, arguments, _, _) in enumerate(self._calls):
            for source, _, _ in arguments:
                if source.place == "arena":
                    last[source.index] = max(last[source.index], number)
        for source, _, _ in outputs:
            last[source.index] = len(self._calls)
        lives = [Life(self._bytes(number), number, last[number]) for number in range(len(self._calls))]
        offsets, total = plan_memory(lives, slices)

        def place(operand: tuple[_Source, tuple[int, ...], str]) -> Operand:
            source, shape, dtype = operand
            index = offsets[source.index] if source.place == "arena" else source.index
            return Operand(source.place, index, shape, dtype)

        calls = [
            Step(symbol, (*(place(a) for a in arguments), Operand("arena", offsets[number], shape, dtype)))
            for number, (symbol, arguments, shape, dtype) in enumerate(self._calls)
            if number not in removed
        ]
        return Steps(tuple(calls), tuple(place(output) for output in outputs), total, tuple(self._weights))


def _typed(expr: relax.Expr) -> tuple[tuple[int, ...], str]:
    ty = expr.ty
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        raise _UnflatError
    try:
        return tuple(int(extent) for extent in ty.shape), str(ty.dtype)
    except TypeError as error:
        raise _UnflatError from error
