"""Depthwise convolution of floats, written as assembly (``cpu/depthwise.py`` has the loops and the notation).

The same loops, tiles and order of sums as the scheduled program has, so a config means the same. A pixel is loaded once
for all taps of a row that read it; weights stay in registers for a whole job where the taps are written out
(``unroll``) and registers suffice, else for a row of taps.

    job:   r13 its block of channels    r12 its weights
    tile:  rbx its first pixel    r14 its place in the result (``Epilogue``)    r10 tiles left in the row
    row of taps: rdi its first pixel    rsi its weights    r8 rows of taps left
    stack: rows of tiles left, room for sums, and rows of the image with their borders, which else lie in a workspace
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from tvm import tirx
from tvm.ir.expr import TensorLoad

from schedules.config import Config
from schedules.target import Target
from schedules.templates.assembly.assembly_text import OF_THREAD, VECTOR_BYTES, AssemblyText
from schedules.templates.assembly.elements import check_reach
from schedules.templates.assembly.epilogue_code import KEPT_PROGRAMS, SCRATCH_BYTES, Epilogue
from schedules.templates.assembly.image_rows import FLOAT, STACK_BYTES, BorderedRows, Image, border_of
from schedules.templates.assembly.tile_sums import SumLoop, TileSums, clear, load_weights, resident_register
from schedules.templates.assembly.vectors import OutOfScope, vectors_of
from schedules.templates.common.indices import linear
from schedules.templates.common.structure import SPATIAL, Anchor, blocks_in_order, extents, nodes_below

ROWS_LEFT, SCRATCH, OWN_ROWS = "[rsp]", VECTOR_BYTES, VECTOR_BYTES + SCRATCH_BYTES
"""Places on the stack."""


@dataclass(frozen=True)
class Windows:
    """How a depthwise convolution reads its image.

    Attributes:
        strides, dilation: down and across.
        size: height and width of the image with its borders.
        before: rows and pixels before the image.
    """

    strides: tuple[int, int]
    dilation: tuple[int, int]
    size: tuple[int, int]
    before: tuple[int, int]


@lru_cache(maxsize=KEPT_PROGRAMS)
def windows_of(func: tirx.PrimFunc, anchor: str, padded: bool) -> Windows:
    """The windows of the block ``anchor``.

    Raises:
        OutOfScope: if it reads its image otherwise.
    """
    blocks = {block.name_hint: block for block in blocks_in_order(func)}
    block = blocks[anchor]
    image = block.reads[0].source
    load = next(load for load in nodes_below(block.body, TensorLoad) if load.source.same_as(image))
    strides, dilation = [], []
    for index, of, tap in zip(load.indices[2:4], block.iter_vars[2:4], block.iter_vars[5:7], strict=True):
        terms, constant = linear(index)
        by_axis = [[factor for atom, factor in terms if atom.same_as(axis.var)] for axis in (of, tap)]
        if constant or sum(map(len, by_axis)) != len(terms):
            raise OutOfScope("an image that is read otherwise")
        strides.append(sum(by_axis[0]))
        dilation.append(sum(by_axis[1]))
    size, before = tuple(int(extent) for extent in image.ty.shape)[2:4], [0, 0]
    if padded:
        pad = blocks["pad"]
        size = extents(pad, SPATIAL)[2:4]
        inner = next(load for load in nodes_below(pad.body, TensorLoad))
        before = [-linear(index)[1] for index in inner.indices[2:4]]
    return Windows((strides[0], strides[1]), (dilation[0], dilation[1]), (size[0], size[1]), (before[0], before[1]))


class DepthwiseAssembly:
    """Writes one kernel.

    Args:
        func: the normalised program of ``anchor``.
        symbol: the kernel's name.

    Raises:
        OutOfScope: for a kernel that is left to the compiler.
    """

    def __init__(self, func: tirx.PrimFunc, anchor: Anchor, config: Config, target: Target, symbol: str) -> None:
        self._vectors = vectors = vectors_of(target)
        if min(anchor.data, anchor.weight) < 0 or anchor.form is not None or set(anchor.prologue) - {"pad"}:
            raise OutOfScope("an image that is computed first, or other numbers")
        if anchor.spatial[4] != vectors.lanes:
            raise OutOfScope("vectors of another length")
        self._anchor, self._code = anchor, AssemblyText(symbol, vectors)
        self._epilogue = Epilogue(func, anchor, vectors)
        self._windows = windows = windows_of(func, anchor.block, anchor.padded)
        if min(windows.before) < 0:
            raise OutOfScope("a border that cuts the image")
        self._size = vectors.size
        batch, blocks, height, width, _ = anchor.spatial
        self._tw, self._rows = config.integer("tw"), config.integer("rows")
        self._unroll = bool(config.integer("unroll"))
        self._planes, self._row_groups = batch * blocks, height // self._rows
        self._line, self._plane = width * self._size, height * width * self._size
        self._own = bool(anchor.padded and config.integer("pad"))
        self._whole = anchor.padded and not self._own
        kh = anchor.reduction[0]
        read = (self._rows - 1) * windows.strides[0] + (kh - 1) * windows.dilation[0] + 1
        self._given = self._image_of(*anchor.shapes[anchor.data][2:4])
        self._image = self._image_of(read if self._own else windows.size[0], windows.size[1])
        check_reach(batch * self._image.batch)
        border = border_of(func) if anchor.padded else 0
        self._bordered = BorderedRows(self._given, self._image, *windows.before, border)
        own_bytes = self._image.channels if self._own else 0
        self._stack_bytes, self._thread_bytes = (own_bytes, 0) if own_bytes <= STACK_BYTES else (0, own_bytes)
        resident = self._sums(True)
        fits = resident.weights + self._tw < vectors.count and len(resident.free()) >= self._epilogue.registers
        self._tile_sums = self._sums(self._unroll and fits)

    def _image_of(self, height: int, width: int) -> Image:
        plane = height * width * self._size
        blocks = self._anchor.spatial[1]
        return Image(height, width, blocks * plane, plane, width * self._size, self._size, FLOAT)

    def _sums(self, resident: bool) -> TileSums:
        """A tile, whose taps are a loop over the filter's rows and one over its columns."""
        (kh, kw, *_), windows = self._anchor.reduction, self._windows
        apart = [each * step for each, step in zip(windows.dilation, (self._image.row, self._size), strict=True)]
        return TileSums(
            tuple(w * windows.strides[1] * self._size for w in range(self._tw)),
            (0,),
            (SumLoop(kh, apart[0]), SumLoop(kw, apart[1])),
            1,
            resident=resident,
            vectors=self._vectors,
        )

    def text(self) -> str:
        """The whole kernel.

        Raises:
            OutOfScope: if registers do not suffice for the epilogue.
        """
        code, tensors = self._code, len(self._anchor.shapes)
        padding, convolution = code.label("padding"), code.label("convolution")
        rows, jobs = self._planes * self._image.height, self._planes * self._row_groups
        loops = [(padding, rows)] * self._whole + [(convolution, jobs)]
        whole_bytes = self._anchor.spatial[0] * self._image.batch if self._whole else 0
        code.entry(tensors, loops, whole_bytes, self._thread_bytes)
        if self._whole:
            data = self._anchor.data
            code.loop_over_jobs(padding, rows, 0, lambda: self._bordered.all_rows(code, data, tensors, 0))
        code.loop_over_jobs(convolution, jobs, OWN_ROWS + self._stack_bytes, self._job, self._thread_bytes)
        return code.text()

    def _job(self) -> None:
        code, anchor, (kh, kw, *_) = self._code, self._anchor, self._anchor.reduction
        # rsi: picture · blocks + block, rdi: the group of rows
        code.emit("mov eax, r15d", "xor edi, edi")
        if self._row_groups > 1:
            code.emit("xor edx, edx", f"mov ecx, {self._row_groups}", "div ecx", "mov edi, edx")
        code.emit("mov esi, eax", "mov r13d, eax")
        if anchor.spatial[0] > 1:
            code.emit("xor edx, edx", f"mov ecx, {anchor.spatial[1]}", "div ecx", "mov r13d, edx")
        code.emit(f"imul r14, rsi, {self._plane}", f"imul rcx, rdi, {self._rows * self._line}", "add r14, rcx")
        code.emit(f"imul r12, r13, {kh * kw * self._size}", f"add r12, [r11+{8 * anchor.weight}]")
        planes = self._given if self._own else self._image
        place = len(anchor.shapes) if self._whole else anchor.data
        code.emit(f"imul rbx, rsi, {planes.channels}", f"add rbx, [r11+{8 * place}]")
        down = self._rows * self._windows.strides[0]
        if self._own:
            self._fetch_rows(down)
        else:
            code.emit(f"imul rdi, rdi, {down * self._image.row}", "add rbx, rdi")
        if self._tile_sums.resident:
            load_weights(code, self._tile_sums)
        row, width, strides = code.label("row"), anchor.spatial[3], self._windows.strides
        code.emit(f"mov qword ptr {ROWS_LEFT}, {self._rows}")
        code.place(row)
        with code.repeated("r10", width // self._tw):
            self._tile()
        code.emit(f"add rbx, {strides[0] * self._image.row - width * strides[1] * self._size}")
        code.emit(f"dec qword ptr {ROWS_LEFT}", f"jnz {row}")

    def _fetch_rows(self, down: int) -> None:
        """This job's rows of the image with their borders to the stack or the workspace; rbx ends there.

        Args:
            down: rows of the image from one job to the next.
        """
        code = self._code
        code.emit(f"imul rdx, rdi, {down}", f"sub rdx, {self._windows.before[0]}", "mov rsi, rbx")
        code.emit(f"mov rbx, [rbp-{OF_THREAD}]" if self._thread_bytes else f"lea rbx, [rsp+{OWN_ROWS}]", "mov rdi, rbx")
        with code.repeated("rax", self._image.height):
            code.emit("push rax")
            self._bordered.copy(code)
            code.emit("inc edx", "pop rax")

    def _tile(self) -> None:
        """One tile; rbx and r14 go on to the next."""
        code, tile, (kh, kw, *_) = self._code, self._tile_sums, self._anchor.reduction
        down, row_of_weights = tile.loops[0].stride, kw * self._size
        clear(code, tile)
        code.emit("mov rdi, rbx", "mov rsi, r12")
        if self._unroll:
            for row in range(kh):
                self._row_of_taps(row * down, row * row_of_weights)
        else:
            with code.repeated("r8", kh):
                self._row_of_taps(0, 0)
                code.emit(f"add rdi, {down}", f"add rsi, {row_of_weights}")
        places = [[w * self._size for w in range(self._tw)]]
        self._epilogue.finish(code, tile, places, SCRATCH)
        code.emit(f"add rbx, {self._tw * self._windows.strides[1] * self._size}", f"add r14, {self._tw * self._size}")

    def _row_of_taps(self, data: int, weights: int) -> None:
        """Products of one row of the filter, whose operands are so many bytes behind rdi and rsi."""
        code, tile = self._code, self._tile_sums
        (sums,), taps = tile.sums(), tile.loops[1]
        memory = [f"[rsi+{weights + tap * self._size}]" for tap in range(taps.trips)]
        free = list(tile.free())
        if tile.resident:
            first = weights // self._size
            held = [resident_register(tile, 0, first + tap) for tap in range(taps.trips)]
        elif len(free) > taps.trips:
            held, free = free[: taps.trips], free[taps.trips :]
            code.emit(*(f"vmovups v{register}, {place}" for register, place in zip(held, memory, strict=True)))
        else:
            for tap, place in enumerate(memory):
                code.emit(f"vmovups v{free[0]}, {place}")
                for total, at in zip(sums, tile.numbers, strict=True):
                    code.emit(f"vfmadd231ps v{total}, v{free[0]}, [rdi+{data + at + tap * taps.stride}]")
            return
        readers: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for tap, weight in enumerate(held):
            for total, at in zip(sums, tile.numbers, strict=True):
                readers[at + tap * taps.stride].append((total, weight))
        for turn, (at, products) in enumerate(sorted(readers.items())):
            pixel = f"[rdi+{data + at}]"
            if len(products) > 1 and free:
                code.emit(f"vmovups v{free[turn % len(free)]}, {pixel}")
                pixel = f"v{free[turn % len(free)]}"
            code.emit(*(f"vfmadd231ps v{total}, v{weight}, {pixel}" for total, weight in products))
