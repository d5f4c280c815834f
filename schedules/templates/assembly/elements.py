"""Arithmetic of single elements, read from a program and written as instructions, a vector of them at a time.

A value is computed once however often it is read, a product that is only added is one instruction with the sum (as the
compiler makes it), and what lies in memory is read by the instruction that needs it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Var
from tvm.ir.expr import TensorLoad

from schedules.templates.assembly.vectors import OutOfScope
from schedules.templates.common.vector_math import KEPT, nearest

SIZES = {"float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "uint8": 1, "int8": 1}
"""Bytes of a number of each type."""

REACH = 2**31 - 1
"""Most bytes of a tensor or workspace: distances within are the instructions' own numbers, of 32 bits and signed."""


def check_reach(*sizes: int) -> None:
    """Raise ``OutOfScope`` if so many bytes are too far apart for an instruction."""
    if max(sizes) > REACH:
        raise OutOfScope("a tensor of 2 GiB or more")


@dataclass(frozen=True)
class Operand:
    """A tensor that is read.

    Attributes:
        parameter: its number among the kernel's.
        strides: elements from one to the next along each axis of the result; 0 where it has one for all.
        dtype: of its numbers.
    """

    parameter: int
    strides: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return SIZES[self.dtype]


@dataclass(frozen=True)
class Value:
    """One value of a program of elements.

    Attributes:
        name: "sum", "operand", "constant", or what is done to ``of``.
        of: numbers of the values that it is computed from.
        operand: the tensor that it is read from.
        bits: of a constant, or the instruction's own number.
    """

    name: str
    of: tuple[int, ...] = ()
    operand: Operand | None = None
    bits: int = 0


ARITHMETIC = {
    tirx.Add: "add",
    tirx.Sub: "sub",
    tirx.Mul: "mul",
    tirx.Div: "div",
    tirx.Max: "max",
    tirx.Min: "min",
}
COMPARED = {tirx.LT: 1, tirx.LE: 2, tirx.GT: 14, tirx.GE: 13, tirx.EQ: 0, tirx.NE: 12}
"""Comparison → its number in vcmpps; all are false for NaN, as the compiler has them."""
INTEGERS = {"add": "vpaddd", "sub": "vpsubd", "mul": "vpmulld", "max": "vpmaxsd", "min": "vpminsd"}
WIDE_TYPES = {"float16": "float32", "bfloat16": "float32", "uint8": "int32", "int8": "int32"}
"""Type of numbers in memory → in registers."""
WIDENED = {"float16": "vcvtph2ps", "bfloat16": "vpmovzxwd", "uint8": "vpmovzxbd", "int8": "vpmovsxbd"}
"""Type of numbers in memory → how they become 32 bits; those of bfloat16 are moved up then."""
SHORT, WHOLE = {"float16": "rounded", "bfloat16": "halves"}, {"rounded": "vcvtph2ps", "halves": "whole"}
"""Type of 16 bits → numbers rounded to it; those → how they become 32 bits."""
NARROW = {**{dtype: (name,) for dtype, name in SHORT.items()}, "uint8": ("bytes", "saturated"), "int8": ("bytes",)}
"""Type → values that are stored as such. Their lanes still have 32 bits, but those of 16 bits."""
COMMUTATIVE = ("add", "mul", "vpaddd", "vpmulld", "vpandd", "vpord", "vpminud", "vpminsd", "vpmaxsd")
STORED = (*WHOLE, "bytes", "saturated")
SHIFTS = {tirx.LShift: "vpslld", tirx.RShift: "vpsrad"}
BITS = {tirx.BitwiseAnd: "vpandd", tirx.BitwiseOr: "vpord"}
ROUNDED = {"tirx.floor": 9, "tirx.nearbyint": 8, "prim.ceil": 10, "tirx.trunc": 11}
"""Rounding → its number in vrndscaleps, exceptions suppressed."""
NEAREST = nearest(tirx.const(0, "float32"))
"""The function that ``vector_math`` makes of a rounding."""
SPECIAL = {
    "rounded": ("vcvtps2ph {short}, {source}, 4",),
    "vcvtph2ps": ("vcvtph2ps v{target}, {half}",),
    "halves": ("vcvtneps2bf16 ymm{target}, {source}",),
    "whole": ("vpmovzxwd v{target}, {half}", "vpslld v{target}, v{target}, 16"),
    "bytes": ("vmovdqu32 v{target}, {source}",),
    "saturated": ("vmovdqu32 v{target}, {source}",),
}
"""Values that one instruction on a vector of 32 bits does not make."""
WIDE = 0xFFFFFFFF


@dataclass
class Elements:
    """A program of elements, in order: the last value is the result.

    Attributes:
        params: of the kernel.
        known: buffers within the kernel, and the value of their element at the same place.
    """

    params: Sequence[Var]
    known: dict[Var, int] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    _numbers: dict[Value, int] = field(default_factory=dict)
    _bound: dict[Var, int] = field(default_factory=dict)

    def add(self, value: Value) -> int:
        """The number of ``value``."""
        if value not in self._numbers:
            self._numbers[value] = len(self.values)
            self.values.append(value)
        return self._numbers[value]

    def operands(self) -> list[Operand]:
        """All tensors that are read, each once."""
        return [value.operand for value in self.values if value.operand is not None]

    def read(self, value: tirx.Expr, axes: Sequence[Var]) -> int:
        """The number of what ``value`` computes in a block with these axes.

        Raises:
            OutOfScope: for what has no instructions here.
        """
        dtype = str(value.ty.dtype)
        if isinstance(value, TensorLoad):
            return self._load(value, axes)
        if isinstance(value, tirx.Cast):
            return self._cast(value, axes)
        if dtype not in ("float32", "int32", "uint32"):
            raise OutOfScope(f"elements of {dtype}")
        if isinstance(value, tirx.FloatImm):
            return self.add(Value("constant", bits=struct.unpack("<I", struct.pack("<f", value.value))[0]))
        if isinstance(value, tirx.IntImm):
            return self.add(Value("constant", bits=int(value.value) & WIDE))
        if isinstance(value, Var) and value in self._bound:
            return self._bound[value]
        if isinstance(value, tirx.Let):
            self._bound[value.var] = self.read(value.value, axes)
            return self.read(value.body, axes)
        if isinstance(value, tirx.Select) and type(value.condition) in COMPARED:
            condition = value.condition
            if str(condition.a.ty.dtype) != "float32":
                raise OutOfScope("integers are compared")
            parts = condition.a, condition.b, value.true_value, value.false_value
            of = tuple(self.read(part, axes) for part in parts)
            return self.add(Value("select", of, bits=COMPARED[type(condition)]))
        if isinstance(value, Call):
            return self._call(value, axes)
        if type(value) in SHIFTS and isinstance(value.b, tirx.IntImm):
            return self.add(Value(SHIFTS[type(value)], (self.read(value.a, axes),), bits=int(value.b.value)))
        if type(value) in BITS:
            return self.add(Value(BITS[type(value)], (self.read(value.a, axes), self.read(value.b, axes))))
        name = ARITHMETIC.get(type(value))
        if dtype == "uint32" and name == "min":
            return self.add(Value("vpminud", (self.read(value.a, axes), self.read(value.b, axes))))
        if name is None or dtype == "uint32" or (dtype == "int32" and name not in INTEGERS):
            raise OutOfScope(f"{type(value).__name__} of {dtype}")
        of = self.read(value.a, axes), self.read(value.b, axes)
        return self.add(Value(INTEGERS[name] if dtype == "int32" else name, of))

    def _load(self, load: TensorLoad, axes: Sequence[Var]) -> int:
        if load.source in self.known:
            if len(load.indices) != len(axes) or not all(map(tvm_ffi.Object.same_as, load.indices, axes)):
                raise OutOfScope("an element of another place")
            return self.known[load.source]
        number = next((at for at, param in enumerate(self.params) if param.same_as(load.source)), None)
        if number is None or str(load.ty.dtype) not in SIZES:
            raise OutOfScope("a tensor that is computed elsewhere, or of other numbers")
        strides, step = [0] * len(axes), 1
        for index, extent in reversed(list(zip(load.indices, load.source.ty.shape, strict=True))):
            axis = next((at for at, axis in enumerate(axes) if index.same_as(axis)), None)
            if axis is None and not (isinstance(index, tirx.IntImm) and int(index.value) == 0):
                raise OutOfScope("an element of another place")
            if axis is not None and int(extent) > 1:
                strides[axis] += step
            step *= int(extent)
        if strides[-1] != 1:
            raise OutOfScope("one number for all lanes")
        operand = Operand(number, tuple(strides), str(load.ty.dtype))
        return self.add(Value("widened" if operand.dtype in WIDENED else "operand", operand=operand))

    def _cast(self, cast: tirx.Cast, axes: Sequence[Var]) -> int:
        number = self.read(cast.value, axes)
        source_type, wanted = str(cast.value.ty.dtype), str(cast.ty.dtype)
        value = self.values[number]
        if value.name in WHOLE and wanted == "float32":  # what was rounded to 16 bits
            return self.add(Value(WHOLE[value.name], (number,)))
        if value.name in STORED:
            raise OutOfScope(f"{source_type} becomes {wanted}")
        source_type = WIDE_TYPES.get(source_type, source_type)  # in a register
        if wanted in ("uint8", "int8") and source_type in ("int32", "uint32"):
            limits = [operand for operand in value.of if self.values[operand] == Value("constant", bits=0xFF)]
            if value.name == "vpminud" and limits and wanted == "uint8":
                return self.add(Value("saturated", (value.of[1 - value.of.index(limits[0])],)))
            return self.add(Value("bytes", (number,)))
        if source_type == "float32" and wanted in SHORT:
            return self.add(Value(SHORT[wanted], (number,)))
        if source_type == wanted or {source_type, wanted} == {"int32", "uint32"}:
            return number
        if {source_type, wanted} == {"int32", "float32"}:
            return self.add(Value("vcvttps2dq" if wanted == "int32" else "vcvtdq2ps", (number,)))
        raise OutOfScope(f"{source_type} becomes {wanted}")

    def _call(self, call: Call, axes: Sequence[Var]) -> int:
        name = str(getattr(call.op, "name", ""))
        if name in ("tirx.reinterpret", KEPT):
            return self.read(call.args[0], axes)
        if name == "tirx.sqrt":
            return self.add(Value("vsqrtps", (self.read(call.args[0], axes),)))
        if name in ROUNDED:
            return self.add(Value("vrndscaleps", (self.read(call.args[0], axes),), bits=ROUNDED[name]))
        if call.op.same_as(NEAREST.op) and int(call.args[0]) == int(NEAREST.args[0]):
            return self.add(Value("vrndscaleps", (self.read(call.args[1], axes),), bits=ROUNDED["tirx.nearbyint"]))
        raise OutOfScope(f"a call of {name}")

    def fused(self) -> list[Value]:
        """The values with products that only a sum reads made one with it, and without those that nothing reads."""
        values = list(self.values)
        readers: dict[int, list[int]] = {len(values) - 1: []}
        for number in reversed(range(len(values))):
            if number not in readers and values[number].name != "sum":
                values[number] = Value("gone")
            for operand in values[number].of:
                readers.setdefault(operand, []).append(number)
        for number, value in enumerate(values):
            if value.name not in ("add", "sub"):
                continue
            for at in (0, 1):
                product, other = value.of[at], value.of[1 - at]
                if values[product].name == "mul" and readers[product] == [number] and product != other:
                    name = "fmadd" if value.name == "add" else ("fmsub", "fnmadd")[at]
                    values[number] = Value(name, (*values[product].of, other))
                    values[product] = Value("gone")
                    break
        return values
