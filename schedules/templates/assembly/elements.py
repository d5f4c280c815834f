"""Arithmetic of single elements, read from a program and written as instructions, a vector of them at a time.

A value is computed once however often it is read, a product that is only added is one instruction with the sum (as the
compiler makes it), and what lies in memory is read by the instruction that needs it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Var
from tvm.ir.expr import TensorLoad

from schedules.templates.assembly.assembly_text import AssemblyText
from schedules.templates.assembly.vectors import OutOfScope, Vectors
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
MEMORY = ("operand", "constant")
KEPT_COUNTS = 1024
"""Numbers of constants in registers that are kept, of as many programs. Heuristic, not measured."""
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


def constants_first(values: Sequence[Value]) -> list[int]:
    """The numbers of constants that an instruction takes first: it cannot read them from memory."""
    return list(
        dict.fromkeys(
            value.of[0]
            for value in values
            if len(value.of) == 2 and value.name not in COMMUTATIVE and values[value.of[0]].name == "constant"
        )
    )


def hold(code: AssemblyText, values: Sequence[Value], registers: Sequence[int]) -> dict[int, int]:
    """Load ``constants_first``, as many as there are registers, for any number of vectors; ``Writer``'s ``held``."""
    held = dict(zip(constants_first(values), registers, strict=False))
    for number, register in held.items():
        _load(code, register, code.constant_bits(values[number].bits))
    return held


def _load(code: AssemblyText, register: int, memory: str) -> None:
    load = "vbroadcastss" if memory.endswith("{1to16}") else "vmovups"
    code.emit(f"{load} v{register}, {memory.removesuffix('{1to16}')}")


def registers_needed(values: Sequence[Value], vectors: Vectors, held: int = 0) -> int:
    """Registers of an element next to its sum, with those of ``held`` constants.

    Raises:
        OutOfScope: if there are too few.
    """
    places = {value.operand: "rdi" for value in values if value.operand is not None}
    for count in range(held, vectors.count):
        code = AssemblyText("", vectors)
        try:
            Writer(code, values, 0, range(1 + held, 1 + count), places, hold(code, values, range(1, 1 + held))).write()
        except OutOfScope:
            continue
        return count
    raise OutOfScope("more intermediate results than registers")


@lru_cache(maxsize=KEPT_COUNTS)
def most_held(values: tuple[Value, ...], vectors: Vectors, free: int) -> int:
    """Return how many of ``constants_first`` ``free`` registers can hold, with what an element needs."""
    for count in range(len(constants_first(values)), 0, -1):
        with suppress(OutOfScope):
            if registers_needed(values, vectors, count) <= free:
                return count
    return 0


class Writer:
    """Writes the instructions of one vector of elements.

    Args:
        values: as ``Elements.fused`` has them.
        total: register of the sum; it may be overwritten.
        free: registers that may be used.
        places: memory operand of every tensor's vector.
        held: constants' numbers, and the registers that ``hold`` loaded them into.

    Raises:
        OutOfScope: if there are too few registers.
    """

    def __init__(
        self,
        code: AssemblyText,
        values: Sequence[Value],
        total: int,
        free: Sequence[int],
        places: Mapping[Operand, str],
        held: Mapping[int, int],
    ) -> None:
        self._code, self._values, self._places = code, values, places
        self._lower_half = code.vectors.lower_half
        self._free, self._total = list(free), total
        self._where = dict(held)
        self._left = [0] * len(values)
        for value in values:
            for number in value.of:
                self._left[number] += 1
        for number in (-1, *held):
            self._left[number] += 1

    def write(self) -> int:
        """The register of the result."""
        for number, value in enumerate(self._values):
            if value.name == "sum":
                self._where[number] = self._total
            elif value.name not in (*MEMORY, "gone"):
                self._where[number] = self._compute(value)
        last = len(self._values) - 1
        return self._where[last] if last in self._where else self._loaded(last)[0]

    def _take(self) -> int:
        if not self._free:
            raise OutOfScope("more intermediate results than registers")
        return self._free.pop()

    def _widened(self, operand: Operand) -> int:
        target = self._take()
        self._code.emit(f"{WIDENED[operand.dtype]} v{target}, [{self._places[operand]}]")
        if operand.dtype == "bfloat16":
            self._code.emit(f"vpslld v{target}, v{target}, 16")
        return target

    def _moved(self, source: str, target: int) -> str:
        """``source`` for an instruction that takes no memory: the register ``target``, where it lies there."""
        if self._code.vectors.is_evex or source.startswith("v"):
            return source
        self._code.emit(f"vmovups v{target}, {source}")
        return f"v{target}"

    def _memory(self, number: int) -> str:
        value = self._values[number]
        if value.operand is not None:
            return f"[{self._places[value.operand]}]"
        return self._code.constant_bits(value.bits)

    def _loaded(self, number: int) -> tuple[int, bool]:
        """The register of a value, and whether it is to be given back after use, which it is told of here."""
        self._left[number] -= 1
        if number in self._where:
            return self._where[number], self._left[number] == 0
        register = self._take()
        _load(self._code, register, self._memory(number))
        return register, True

    def _source(self, number: int) -> tuple[str, int | None]:
        """The last operand of an instruction, which may lie in memory, and the register to give back."""
        if number in self._where:
            register, ends = self._loaded(number)
            return f"v{register}", register if ends else None
        self._left[number] -= 1
        return self._memory(number), None

    def _compute(self, value: Value) -> int:
        if value.name == "select":
            return self._select(value)
        if value.operand is not None:
            return self._widened(value.operand)
        if len(value.of) == 3:
            return self._multiplied_and_added(value)
        if len(value.of) == 1:
            source, ends = self._source(value.of[0])
            if value.name in ("bytes", "saturated") and ends is not None:
                return ends
            target = self._take() if ends is None else ends
            if value.name == "halves" and not self._code.vectors.is_evex:
                raise OutOfScope("numbers are rounded to bfloat16")
            if value.name == "rounded" and not source.startswith("v"):  # its instruction reads no memory
                _load(self._code, target, source)
                source = f"v{target}"
            if value.name in SPECIAL:
                half = self._lower_half(int(source[1:])) if source.startswith("v") else source
                names = {"target": target, "source": source, "half": half, "short": self._lower_half(target)}
                self._code.emit(*(line.format(**names) for line in SPECIAL[value.name]))
                return target
            if value.name in SHIFTS.values():
                source = self._moved(source, target)
            number = f", {value.bits}" if value.name in ("vrndscaleps", *SHIFTS.values()) else ""
            self._code.emit(f"{value.name} v{target}, {source}{number}")
            return target
        left, right = value.of
        if value.name in COMMUTATIVE and left not in self._where:
            left, right = right, left
        register, ends = self._loaded(left)
        source, other = self._source(right)
        target = register if ends else self._take() if other is None else other
        name = value.name if value.name.startswith("v") else f"v{value.name}ps"
        self._code.emit(f"{name} v{target}, v{register}, {source}")
        self._free.extend(spare for spare in (register if ends else None, other) if spare not in (None, target))
        return target

    def _multiplied_and_added(self, value: Value) -> int:
        """a · b + c, or with other signs: the result takes the place of the operand that nothing else reads."""
        a, b, c = value.of
        ends = {
            operand: operand in self._where and self._left[operand] == value.of.count(operand) for operand in value.of
        }
        if ends[c]:
            target, _ = self._loaded(c)
            if a not in self._where and b in self._where:
                a, b = b, a
            register, over = self._loaded(a)
            source, other = self._source(b)
            self._code.emit(f"v{value.name}231ps v{target}, v{register}, {source}")
            kept = target
        else:
            if not ends[a] and ends[b]:
                a, b = b, a
            target, over = self._loaded(a)
            if not over:
                copy = self._take()
                self._code.emit(f"vmovaps v{copy}, v{target}")
                target = copy
            register, over = self._loaded(b)
            source, other = self._source(c)
            self._code.emit(f"v{value.name}213ps v{target}, v{register}, {source}")
            kept = target
        self._free.extend({spare for spare in (register if over else None, other) if spare not in (None, kept)})
        return kept

    def _select(self, value: Value) -> int:
        """vcmpps and a blend."""
        a, b, true, false = value.of
        left, left_ends = self._loaded(a)
        source, right_ends = self._source(b)
        if not self._code.vectors.is_evex:
            return self._blended(value, left, source, {left if left_ends else None, right_ends} - {None})
        self._code.emit(f"vcmpps k1, v{left}, {source}, {value.bits}")
        self._free.extend(spare for spare in {left if left_ends else None, right_ends} if spare is not None)
        first, first_ends = self._loaded(false)
        source, second_ends = self._source(true)
        target = first if first_ends else self._take() if second_ends is None else second_ends
        self._code.emit(f"vblendmps v{target}{{k1}}, v{first}, {source}")
        ended = {first if first_ends else None, second_ends} - {None, target}
        self._free.extend(spare for spare in ended if spare is not None)
        return target

    def _blended(self, value: Value, left: int, right: str, ended: set[int | None]) -> int:
        """``_select`` where masks are vectors: of register ``left`` and ``right``, of which ``ended`` may be used."""
        mask = next((spare for spare in ended if spare is not None), None)
        mask = self._take() if mask is None else mask
        self._code.emit(f"vcmpps v{mask}, v{left}, {right}, {value.bits}")
        self._free.extend(spare for spare in ended if spare not in (None, mask))
        first, first_ends = self._loaded(value.of[3])
        source, second_ends = self._source(value.of[2])
        target = first if first_ends else mask if second_ends is None else second_ends
        self._code.emit(f"vblendvps v{target}, v{first}, {source}, v{mask}")
        ended = {first if first_ends else None, second_ends, mask} - {None, target}
        self._free.extend(spare for spare in ended if spare is not None)
        return target
