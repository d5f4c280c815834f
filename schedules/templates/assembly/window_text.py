"""Depthwise convolutions as text for the system's assembler (``product_text.py`` has the registers).

A pixel is loaded once for all taps of a row that read it. Weights stay in registers for a whole job where the taps are
written out and registers suffice, else for a row of taps.

    row of taps: rdi its first pixel    rsi its weights    r8 rows of taps left
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from tvm import tirx
from tvm.ir.expr import TensorLoad

from schedules.templates.assembly.assembly_text import OF_THREAD
from schedules.templates.assembly.elements import check_reach
from schedules.templates.assembly.epilogue_code import KEPT_PROGRAMS
from schedules.templates.assembly.image_rows import FLOAT, STACK_BYTES, BorderedRows, Image, border_of
from schedules.templates.assembly.picture_text import PictureText
from schedules.templates.assembly.product_text import COUNTERS, OWN_ROWS, SCRATCH
from schedules.templates.assembly.tile_sums import SumLoop, TileSums, clear, load_weights, resident_register
from schedules.templates.assembly.vectors import OutOfScope
from schedules.templates.common.indices import linear
from schedules.templates.common.structure import SPATIAL, blocks_in_order, extents, nodes_below
from schedules.templates.nests.loop_nest import BEFORE, IN_JOBS, Role


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


class WindowText(PictureText):
    """A depthwise convolution of floats; rows of a job's own that do not fit the stack lie in a workspace.

    job: rsi the picture · blocks + the block, r13 the block, rdi the group of rows, r8 the part of a row, of 32 bits
    """

    def measure(self, func: tirx.PrimFunc) -> None:
        """Find out how the image is read, and which taps lie in registers."""
        anchor, nest, vectors = self.anchor, self.nest, self.vectors
        if min(anchor.data, anchor.weight) < 0 or anchor.form is not None or set(anchor.prologue) - {"pad"}:
            raise OutOfScope("an image that is computed first, or other numbers")
        if anchor.spatial[4] != vectors.lanes:
            raise OutOfScope("vectors of another length")
        self.windows = windows = windows_of(func, anchor.block, anchor.padded)
        if min(windows.before) < 0:
            raise OutOfScope("a border that cuts the image")
        batch, _, height, width, _ = anchor.spatial
        self.down = windows.strides[0]
        own = nest.padding == IN_JOBS
        read = (self.rows - 1) * self.down + (anchor.reduction[0] - 1) * windows.dilation[0] + 1
        self.inner = self._image_of(*anchor.shapes[anchor.data][2:4])
        self.image = image = self._image_of(read if own else windows.size[0], windows.size[1])
        check_reach(batch * image.batch)
        self.data = {"oh": self.down * image.row, "ow": windows.strides[1] * self.size}
        self.data |= {"kh": windows.dilation[0] * image.row, "kw": windows.dilation[1] * self.size}
        self.result = {"o": height * width * self.size, "oh": width * self.size, "ow": self.size}
        border = border_of(func) if nest.padding else 0
        self.bordered = BorderedRows(self.inner, image, *windows.before, border)
        own_bytes = image.channels if own else 0
        self.own_bytes, self.thread_bytes = (own_bytes, 0) if own_bytes <= STACK_BYTES else (0, own_bytes)
        self.written_out = all(loop.role is Role.STEP for loop in nest.loops if loop.axis in nest.summed)
        resident = self._sums(True)
        fits = resident.weights + self.numbers("ow") < vectors.count
        self.tile = self._sums(self.written_out and fits and len(resident.free()) >= self.epilogue.registers)

    def _image_of(self, height: int, width: int) -> Image:
        plane = height * width * self.size
        blocks = self.anchor.spatial[1]
        return Image(height, width, blocks * plane, plane, width * self.size, self.size, FLOAT)

    def _sums(self, resident: bool) -> TileSums:
        """A tile, whose taps are a loop over the filter's rows and one over its columns."""
        return TileSums(
            tuple(w * self.data["ow"] for w in range(self.numbers("ow"))),
            (0,),
            tuple(SumLoop(self.nest.size(axis), self.data[axis]) for axis in ("kh", "kw")),
            1,
            resident=resident,
            vectors=self.vectors,
        )

    def job(self) -> None:
        """All tiles of a job."""
        code, anchor, nest = self.code, self.anchor, self.nest
        code.emit("mov eax, r15d", "xor edi, edi")
        if self.parts > 1:
            code.emit("xor edx, edx", f"mov ecx, {self.parts}", "div ecx", "mov r8d, edx")
        groups = int(nest.extent(Role.JOB, axis="oh"))
        if groups > 1:
            code.emit("xor edx, edx", f"mov ecx, {groups}", "div ecx", "mov edi, edx")
        code.emit("mov esi, eax", "mov r13d, eax")
        if anchor.spatial[0] > 1:
            code.emit("xor edx, edx", f"mov ecx, {anchor.spatial[1]}", "div ecx", "mov r13d, edx")
        parts = [("r8", self.columns * self.result["ow"])] if self.parts > 1 else []
        self.point_at_results(("rsi", self.result["o"]), ("rdi", self.rows * self.result["oh"]), *parts)
        self.point_at_weights()
        own, planes = nest.padding == IN_JOBS, self.inner if nest.padding == IN_JOBS else self.image
        place = len(anchor.shapes) if nest.padding == BEFORE else anchor.data
        code.emit(f"imul rbx, rsi, {planes.channels}", f"add rbx, [r11+{8 * place}]")
        if own:
            self._fetch_rows(self.rows * self.down)
        else:
            code.emit(f"imul rdi, rdi, {self.rows * self.down * self.image.row}", "add rbx, rdi")
            self.skip_columns()
        if self.tile.resident:
            load_weights(code, self.tile)
        row, (_, across) = code.label("row"), self.tiles
        code.emit(f"mov qword ptr {COUNTERS[0]}, {self.rows}")
        code.place(row)
        with code.repeated("r10", across.extent):
            self._tile()
        code.emit(f"add rbx, {self.data['oh'] - self.columns * self.data['ow']}")
        if self.parts > 1:
            code.emit(f"add r14, {self.result['oh'] - self.columns * self.result['ow']}")
        code.emit(f"dec qword ptr {COUNTERS[0]}", f"jnz {row}")

    def _fetch_rows(self, down: int) -> None:
        """This job's rows of the image with their borders to the stack or the workspace; rbx ends there.

        Args:
            down: rows of the image from one job to the next.
        """
        code = self.code
        code.emit(f"imul rdx, rdi, {down}", f"sub rdx, {self.windows.before[0]}", "mov rsi, rbx")
        code.emit(f"mov rbx, [rbp-{OF_THREAD}]" if self.thread_bytes else f"lea rbx, [rsp+{OWN_ROWS}]", "mov rdi, rbx")
        with code.repeated("rax", self.image.height):
            code.emit("push rax")
            self.bordered.copy(code)
            code.emit("inc edx", "pop rax")

    def _tile(self) -> None:
        """One tile; rbx and r14 go on to the next."""
        code, tile, (kh, kw, *_) = self.code, self.tile, self.anchor.reduction
        down, row_of_weights = tile.loops[0].stride, kw * self.size
        clear(code, tile)
        code.emit("mov rdi, rbx", "mov rsi, r12")
        if self.written_out:
            for row in range(kh):
                self._row_of_taps(row * down, row * row_of_weights)
        else:
            with code.repeated("r8", kh):
                self._row_of_taps(0, 0)
                code.emit(f"add rdi, {down}", f"add rsi, {row_of_weights}")
        self.epilogue.finish(code, tile, [[w * self.size for w in range(self.numbers("ow"))]], SCRATCH)
        code.emit(f"add rbx, {self.numbers('ow') * self.data['ow']}", f"add r14, {self.numbers('ow') * self.size}")

    def _row_of_taps(self, data: int, weights: int) -> None:
        """Products of one row of the filter, whose operands are so many bytes behind rdi and rsi."""
        code, tile = self.code, self.tile
        (sums,), taps = tile.sums(), tile.loops[1]
        memory = [f"[rsi+{weights + tap * self.size}]" for tap in range(taps.trips)]
        free = list(tile.free())
        if tile.resident:
            first = weights // self.size
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
