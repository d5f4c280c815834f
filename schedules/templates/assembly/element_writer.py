"""Values of elements as instructions: registers, operands in memory, and the order in which they are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from schedules.templates.assembly.assembly_text import AssemblyText
from schedules.templates.assembly.elements import COMMUTATIVE, SHIFTS, SPECIAL, WIDENED, Operand, Value
from schedules.templates.assembly.vectors import OutOfScope, Vectors

MEMORY = ("operand", "constant")
KEPT_COUNTS = 1024
"""Numbers of constants in registers that are kept, of as many programs. Heuristic, not measured."""


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
