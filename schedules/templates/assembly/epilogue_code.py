"""Epilogues of products, element by element, and their results: instructions on the sums of a tile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache

import tvm_ffi
from tvm import tirx
from tvm.ir import Var
from tvm.ir.expr import TensorLoad

from schedules.templates.assembly.assembly_text import VECTOR_BYTES, AssemblyText
from schedules.templates.assembly.element_writer import Writer, hold, most_held, registers_needed
from schedules.templates.assembly.elements import NARROW, SIZES, STORED, Elements, Value, check_reach
from schedules.templates.assembly.tile_sums import TileSums, add_up, clear
from schedules.templates.assembly.vectors import AVX512, OutOfScope, Vectors
from schedules.templates.common.structure import Anchor, blocks_in_order, renamed
from schedules.templates.common.vector_math import vector_math
from schedules.templates.instructions.kept_nan import nan_kept
from schedules.templates.instructions.rounding import rounded_in_bits

POINTERS = ("rax", "rcx", "rdx", "r8", "rsi")
"""Registers for what the epilogue reads."""

FLOAT = 4
"""Bytes of a number."""

SCRATCH_BYTES = AVX512.count * VECTOR_BYTES
"""Room for the sums of any tile."""


KEPT_PROGRAMS = 1024
"""Programs whose parts are kept as they were read: more than the tasks of any model seen. Heuristic, not measured."""

MOST_TEXT = 100_000
"""Characters of an epilogue as one expression, in which what is read twice stands twice. Heuristic, not measured."""


@lru_cache(maxsize=KEPT_PROGRAMS)
def read_epilogue(func: tirx.PrimFunc, anchor: str, epilogue: tuple[str, ...]) -> Elements:
    """Return the value that the last block of ``func`` writes, as a program on the anchor's element.

    Args:
        anchor: name of the product's block; empty where there is none.
        epilogue: names of the blocks behind it, or of all of them.

    Raises:
        OutOfScope: for anything but element-wise arithmetic.
    """
    blocks = {block.name_hint: block for block in blocks_in_order(vector_math(func))}
    if not blocks[(anchor, *epilogue)[-1]].writes[0].source.same_as(func.params[-1]):
        raise OutOfScope("more results than one")
    program = Elements(list(func.params))
    if anchor:
        program.known[blocks[anchor].writes[0].source] = program.add(Value("sum"))
    axes: list[Var] = []
    values: dict[Var, tirx.Expr] = {}
    for name in epilogue:
        store, own = blocks[name].body, [axis.var for axis in blocks[name].iter_vars]
        axes = axes or own
        if not isinstance(store, tirx.BufferStore) or blocks[name].init is not None or len(own) != len(axes):
            raise OutOfScope(f"{name} is no plain element")
        if len(store.indices) != len(own) or not all(i.same_as(a) for i, a in zip(store.indices, own, strict=True)):
            raise OutOfScope(f"{name} writes elsewhere")
        values[store.buffer] = _joined(store.value, dict(zip(own, axes, strict=True)), values)
        if len(str(values[store.buffer])) > MOST_TEXT:
            raise OutOfScope("an epilogue of many parts")
    if epilogue:
        last = program.read(rounded_in_bits(nan_kept(values[blocks[epilogue[-1]].body.buffer])), axes)
        if last != len(program.values) - 1:
            raise OutOfScope("a result that is no last value")
    return program


def _joined(value: tirx.Expr, axes: Mapping[Var, Var], values: Mapping[Var, tirx.Expr]) -> tirx.Expr:
    """``value`` in terms of the first block's axes, with what it reads of ``values`` in place."""
    elsewhere: list[TensorLoad] = []  # an exception would leave TVM's walk as a RuntimeError

    def replaced(load: TensorLoad) -> tirx.Expr:
        if load.source not in values:
            return load
        own = list(axes.values())
        if len(load.indices) != len(own) or not all(map(Var.same_as, own, load.indices)):
            elsewhere.append(load)
        return values[load.source]

    joined = tvm_ffi.structural_map(renamed(value, axes), (TensorLoad, replaced), order="post")
    if elsewhere:
        raise OutOfScope("an element of another place")
    return joined


def check_result(values: Sequence[Value], dtype: str) -> None:
    """Raise ``OutOfScope`` unless the last value is stored as numbers of ``dtype``."""
    last = values[-1].name
    if dtype not in SIZES or (last if last in STORED else "") not in NARROW.get(dtype, ("",)):
        raise OutOfScope("a result of another type than what is computed")


def write_result(code: AssemblyText, values: Sequence[Value], dtype: str, register: int, memory: str) -> None:
    """Store the vector of the last of ``values``, which is in ``register``."""
    own = f"v{register}"
    if SIZES[dtype] == 1 and not code.vectors.is_evex:  # eight numbers, from two halves of a vector into one
        limit = code.constant_bits(0xFF)
        code.emit(f"{'vpminud' if values[-1].name == 'saturated' else 'vpandd'} {own}, {own}, {limit}")
        code.emit(f"vpackusdw {own}, {own}, {own}", f"vpermq {own}, {own}, 8", f"vpackuswb {own}, {own}, {own}")
        code.emit(f"vmovq {memory}, xmm{register}")
        return
    if SIZES[dtype] == 1:
        narrowed = "vpmovusdb" if values[-1].name == "saturated" else "vpmovdb"
        code.emit(f"{narrowed} xmm{register}, {own}")
    parts = {1: f"xmm{register}", 2: code.vectors.lower_half(register)}
    code.emit(f"vmovups {memory}, {parts.get(SIZES[dtype], own)}")


def _scaled(place: int, size: int) -> int:
    """A place among numbers of 4 bytes as one among numbers of ``size`` bytes."""
    return place * size // FLOAT


def _point(code: AssemblyText, pointer: str, tensor: int, size: int) -> None:
    """``pointer``: as many numbers of ``size`` bytes into a tensor as there are of 4 bytes in r14."""
    code.emit(f"mov {pointer}, r14")
    if size < FLOAT:
        code.emit(f"shr {pointer}, {FLOAT // size // 2}")
    code.emit(f"add {pointer}, [r11+{8 * tensor}]")


class Epilogue:
    """The operations behind an anchor of channel blocks (n, o, h, w, b) or of columns (m, n), and its result.

    It finds the closure in r11, the number of the first block in r13, and in r14 the place of the first element in the
    result, in bytes as if numbers had 4. It needs rdi and ``POINTERS``. Places of other elements are given likewise.

    Raises:
        OutOfScope: for what is not written here.
    """

    def __init__(self, func: tirx.PrimFunc, anchor: Anchor, vectors: Vectors = AVX512) -> None:
        self._vectors = vectors
        check_reach(*(math.prod(shape) * FLOAT for shape in anchor.shapes))
        dtypes = tuple(str(func.params[at].ty.dtype) for at in (anchor.data, anchor.weight))
        if dtypes != (("float32", "float32") if anchor.form is None else (anchor.form.data, anchor.form.weight)):
            raise OutOfScope("a product of other numbers")
        program = read_epilogue(func, anchor.block, anchor.epilogue)
        self._values, self._operands = program.fused(), program.operands()
        self._result, self._dtype = len(anchor.shapes) - 1, str(func.params[-1].ty.dtype)
        check_result(self._values, self._dtype)
        if len(self._operands) > len(POINTERS):
            raise OutOfScope("more tensors than pointers")
        self._held: dict[int, int] = {}
        sizes = anchor.spatial
        if anchor.shapes[-1] != sizes:
            raise OutOfScope("a result of another shape than the sums'")
        dense = tuple(math.prod(sizes[at + 1 :]) if extent > 1 else 0 for at, extent in enumerate(sizes))
        self._alike = {operand: operand.strides == dense for operand in self._operands}
        self._block_bytes = {}
        for operand, alike in self._alike.items():
            own = [at for at, stride in enumerate(operand.strides) if stride]
            last = len(sizes) - 1
            if not alike and set(own) - ({1, last} if last > 1 else {last}):
                raise OutOfScope("a tensor with one number for a row")
            self._block_bytes[operand] = (operand.strides[1] if last > 1 else vectors.lanes) * operand.size

    def hold(self, code: AssemblyText, registers: Sequence[int]) -> None:
        """Load constants that instructions take first into ``registers``, which later calls of ``store`` read."""
        self._held = hold(code, self._values, registers)

    def begin(self, code: AssemblyText) -> None:
        """Get the pointers of a tile."""
        for operand, pointer in zip(self._operands, POINTERS, strict=False):
            if self._alike[operand]:
                _point(code, pointer, operand.parameter, operand.size)
            else:
                code.emit(f"imul {pointer}, r13, {self._block_bytes[operand]}")
                code.emit(f"add {pointer}, [r11+{8 * operand.parameter}]")
        _point(code, "rdi", self._result, SIZES[self._dtype])

    def store(self, code: AssemblyText, total: int, free: Sequence[int], block: int, place: int) -> None:
        """Write the result of the sum in register ``total``, which may be overwritten.

        Args:
            free: registers that may be used.
            block: number of the element's block in the tile.
            place: bytes from the tile's first element to this one in the result.
        """
        at = {
            operand: f"{pointer}+{_scaled(place, operand.size) if self._alike[operand] else block * step}"
            for (operand, step), pointer in zip(self._block_bytes.items(), POINTERS, strict=False)
        }
        register = Writer(code, self._values, total, free, at, self._held).write()
        write_result(code, self._values, self._dtype, register, f"[rdi+{_scaled(place, SIZES[self._dtype])}]")

    def tile(
        self,
        code: AssemblyText,
        tile: TileSums,
        places: Sequence[Sequence[int]],
        scratch: int,
        chunks: tuple[int, str] = (1, ""),
    ) -> None:
        """A whole tile: its sums, from rdi and rsi on, and its results.

        Args:
            places, scratch: as of ``finish``.
            chunks: chunks of the sum, and where the number of those left is; what is summed so far lies in the result.
        """
        count, left = chunks
        if count > 1 and SIZES[self._dtype] != FLOAT:
            raise OutOfScope("partial sums do not fit the result")
        ended = code.label("ended")
        if count > 1:
            follows, begun = code.label("follows"), code.label("begun")
            code.emit(f"cmp qword ptr {left}, {count}", f"jne {follows}")
            clear(code, tile)
            code.emit(f"jmp {begun}")
            code.place(follows)
            self._pass_sums(code, tile, places, load=True)
            code.place(begun)
        else:
            clear(code, tile)
        add_up(code, tile)
        if count > 1:
            last = code.label("last")
            code.emit(f"cmp qword ptr {left}, 1", f"je {last}")
            self._pass_sums(code, tile, places, load=False)
            code.emit(f"jmp {ended}")
            code.place(last)
        self.finish(code, tile, places, scratch)
        code.place(ended)

    def _pass_sums(self, code: AssemblyText, tile: TileSums, places: Sequence[Sequence[int]], load: bool) -> None:
        """Partial sums from the result, or to it."""
        code.emit(f"mov r8, [r11+{8 * self._result}]", "add r8, r14")
        for registers, row in zip(tile.sums(), places, strict=True):
            for register, place in zip(registers, row, strict=True):
                memory = f"[r8+{place}]"
                code.emit(f"vmovups v{register}, {memory}" if load else f"vmovups {memory}, v{register}")

    def finish(self, code: AssemblyText, tile: TileSums, places: Sequence[Sequence[int]], scratch: int) -> None:
        """Write the results of a whole tile.

        Args:
            places: bytes from the tile's first element to each, by block, by number.
            scratch: bytes from rsp to ``SCRATCH_BYTES`` of room, for sums that have to make way for each other.
        """
        self.begin(code)
        sums = [
            (block, register, place)
            for block, (registers, row) in enumerate(zip(tile.sums(), places, strict=True))
            for register, place in zip(registers, row, strict=True)
        ]
        if tile.resident or self.registers <= len(tile.free()):
            free = self._beside_held(code, tile.free())
            for block, register, place in sums:
                self.store(code, register, free, block, place)
            return
        code.emit(*(f"vmovaps [rsp+{scratch + register * VECTOR_BYTES}], v{register}" for _, register, _ in sums))
        free = self._beside_held(code, range(1, self._vectors.count))
        for block, register, place in sums:
            code.emit(f"vmovaps v0, [rsp+{scratch + register * VECTOR_BYTES}]")
            self.store(code, 0, free, block, place)

    def _beside_held(self, code: AssemblyText, free: Sequence[int]) -> Sequence[int]:
        """Hold as many constants as ``free`` has registers for; the other registers."""
        own = len(free) - most_held(tuple(self._values), self._vectors, len(free))
        self.hold(code, free[own:])
        return free[:own]

    @cached_property
    def registers(self) -> int:
        """How many registers an element needs beside its sum."""
        return registers_needed(self._values, self._vectors)
