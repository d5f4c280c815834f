"""Direct convolution, written as assembly (``cpu/conv2d.py`` has the loops and the notation).

The same loops, tiles and order of sums as the scheduled program has, so a config means the same. Where a kernel is out
of what is written here (other instructions, groups that straddle blocks, an epilogue that is no arithmetic), the
compiler makes it.

    job:   r13 its first block of channels    r12 its weights    r9 the weights that are asked for ahead
    tile:  rbx its first pixel    r14 its place in the result (``Epilogue``)    r10 tiles left in the row
    stack: rows of tiles left, chunks of the sum left, room for sums, and rows of the image with their borders
"""

from __future__ import annotations

import math
from dataclasses import replace

from tvm import tirx

from schedules.config import Config
from schedules.target import Target
from schedules.templates.assembly.assembly_text import VECTOR_BYTES, AssemblyText
from schedules.templates.assembly.elements import check_reach
from schedules.templates.assembly.epilogue_code import SCRATCH_BYTES, Epilogue
from schedules.templates.assembly.image_rows import FLOAT, STACK_BYTES, BorderedRows, Image, border_of, check_image
from schedules.templates.assembly.tile_sums import (
    Prefetch,
    SumLoop,
    TileSums,
    check_registers,
    load_weights,
    product_of,
)
from schedules.templates.assembly.vectors import OutOfScope, vectors_of
from schedules.templates.common.prefetch import share_of_lines
from schedules.templates.common.structure import Anchor

ROWS_LEFT, CHUNKS_LEFT, SCRATCH, OWN_ROWS = "[rsp]", "[rsp+8]", VECTOR_BYTES, VECTOR_BYTES + SCRATCH_BYTES
"""Places on the stack."""


class Conv2dAssembly:
    """Writes one kernel.

    Args:
        func: the normalised program of ``anchor``.
        symbol: the kernel's name.

    Raises:
        OutOfScope: for a kernel that is left to the compiler.
    """

    def __init__(self, func: tirx.PrimFunc, anchor: Anchor, config: Config, target: Target, symbol: str) -> None:
        if config.integer("algorithm"):
            raise OutOfScope("another algorithm")
        self._vectors = vectors = vectors_of(target)
        self._size = vectors.size
        check_image(anchor, vectors)
        self._product = product_of(anchor.form, target)
        batch, blocks, height, width, _ = anchor.spatial
        self._anchor, self._code = anchor, AssemblyText(symbol, vectors)
        self._epilogue = Epilogue(func, anchor, vectors)
        self._to, self._th, self._tw, self._rows = (config.integer(name) for name in ("to", "th", "tw", "rows"))
        self._unroll, self._depth = config.integer("unroll"), config.integer("depth")
        self._inner = config.integer("outer") == 1
        self._block_groups, self._row_groups = blocks // self._to, height // self._rows
        self._jobs = batch * self._block_groups * self._row_groups
        self._chunks = anchor.reduction[0] // self._depth
        self._terms = math.prod(anchor.reduction[1:4])
        self._panel = anchor.reduction[0] * self._terms * vectors.size
        self._line, self._plane = width * vectors.size, height * width * vectors.size
        shape, (top, left, bottom, right) = anchor.shapes[anchor.data], anchor.padding
        self._given = Image.of(anchor, shape[2], shape[3])
        self._own = bool(anchor.padded and config.integer("pad"))
        self._whole = anchor.padded and not self._own
        (_, kh, *_), (down, _), (apart, _) = anchor.reduction, anchor.geometry["strides"], anchor.geometry["dilation"]
        rows = (self._rows - 1) * down + (kh - 1) * apart + 1 if self._own else shape[2] + top + bottom
        self._image = Image.of(anchor, rows, shape[3] + left + right) if anchor.padded else self._given
        check_reach(batch * self._image.batch)
        self._bordered = BorderedRows(self._given, self._image, top, left, border_of(func) if anchor.padded else 0)
        self._own_planes = anchor.reduction[0] * anchor.reduction[3] * FLOAT // self._image.pixel
        self._own_bytes = self._own_planes * rows * self._image.row if self._own else 0
        if self._own_bytes > STACK_BYTES:
            raise OutOfScope("a job's rows do not fit the stack")
        self._tiles = self._rows // self._th * -(-width // self._tw)
        self._prefetch = self._ahead()
        self._resident = False
        check_registers(self._sums(self._tw))
        widths = {self._tw} if width % self._tw == 0 else {self._tw, width % self._tw}
        tiles = [replace(self._sums(each), resident=True) for each in widths]
        fitting = all(tile.can_hold and len(tile.free()) >= self._epilogue.registers for tile in tiles)
        self._resident = self._chunks == 1 and fitting

    def text(self) -> str:
        """The whole kernel.

        Raises:
            OutOfScope: if registers do not suffice for the epilogue.
        """
        code, batch = self._code, self._anchor.spatial[0]
        padding, convolution = code.label("padding"), code.label("convolution")
        rows = batch * self._anchor.shapes[self._anchor.data][1] * self._image.height
        loops = [(padding, rows)] * self._whole + [(convolution, self._jobs)]
        code.entry(len(self._anchor.shapes), loops, batch * self._image.batch if self._whole else 0)
        if self._whole:
            place = len(self._anchor.shapes)
            code.loop_over_jobs(padding, rows, 0, lambda: self._bordered.all_rows(code, self._anchor.data, place, 0))
        code.loop_over_jobs(convolution, self._jobs, OWN_ROWS + self._own_bytes, self._job)
        return code.text()

    def _job(self) -> None:
        code, anchor, image = self._code, self._anchor, self._image
        first, second = (
            (self._block_groups, self._row_groups) if self._inner else (self._row_groups, self._block_groups)
        )
        # (eax: picture, r13: the group of blocks, rdi: the group of rows), all of 32 bits
        inner, outer = ("r13d", "edi") if self._inner else ("edi", "r13d")
        code.emit("mov eax, r15d")
        for count, result in ((first, inner), (second, outer)):
            code.emit("xor edx, edx", f"mov ecx, {count}", "div ecx", f"mov {result}, edx")
        code.emit(f"imul r14, rax, {self._plane * anchor.spatial[1]}", f"imul rcx, r13, {self._to * self._plane}")
        code.emit("add r14, rcx", f"imul rcx, rdi, {self._rows * self._line}", "add r14, rcx")
        code.emit(f"imul r12, r13, {self._to * self._panel}", f"add r12, [r11+{8 * anchor.weight}]")
        self._start_ahead()
        code.emit(f"imul r13, r13, {self._to}")
        # rbx: the picture, from its first channel of this group on
        planes = self._given if self._own else image
        code.emit(
            f"imul rbx, rax, {planes.batch}",
            f"add rbx, [r11+{8 * (len(anchor.shapes) if self._whole else anchor.data)}]",
        )
        if anchor.groups > 1:
            code.emit("mov eax, r13d", "xor edx, edx", f"mov ecx, {anchor.spatial[1] // anchor.groups}", "div ecx")
            code.emit(f"imul rax, rax, {anchor.reduction[0] * planes.channels}", "add rbx, rax")
        down = self._rows * int(anchor.geometry["strides"][0])
        if self._own:
            self._fetch_rows(down)
        else:
            code.emit(f"imul rdi, rdi, {down * image.row}", "add rbx, rdi")
        if self._resident:
            load_weights(code, self._sums(self._tw))
        self._chunks_of_sum()

    def _fetch_rows(self, down: int) -> None:
        """This job's rows of the image with their borders onto the stack; rbx ends there.

        Args:
            down: rows of the image from one job to the next.
        """
        code = self._code
        code.emit(f"imul r10, rdi, {down}", f"sub r10, {self._anchor.padding[0]}", "mov rsi, rbx")
        code.emit(f"lea rbx, [rsp+{OWN_ROWS}]", "mov rdi, rbx")
        with code.repeated("r8", self._own_planes):
            code.emit("mov rdx, r10")
            with code.repeated("rax", self._image.height):
                code.emit("push rax")
                self._bordered.copy(code)
                code.emit("inc edx", "pop rax")
            code.emit(f"add rsi, {self._given.height * self._given.row}")

    def _chunks_of_sum(self) -> None:
        code, image = self._code, self._image
        tiles_down = self._rows // self._th
        if self._chunks > 1:
            chunk = code.label("chunk")
            code.emit(f"mov qword ptr {CHUNKS_LEFT}, {self._chunks}")
            code.place(chunk)
            if self._prefetch is not None:
                code.emit(f"lea r9, [r12+{self._depth * self._terms * self._size}]")
        row = code.label("row")
        code.emit(f"mov qword ptr {ROWS_LEFT}, {tiles_down}")
        code.place(row)
        self._row_of_tiles()
        strides, width = self._anchor.geometry["strides"], self._anchor.spatial[3]
        down = self._th * strides[0] * image.row
        code.emit(f"add rbx, {down - width * strides[1] * image.pixel}", f"add r14, {(self._th - 1) * self._line}")
        code.emit(f"dec qword ptr {ROWS_LEFT}", f"jnz {row}")
        if self._chunks > 1:
            code.emit(f"add rbx, {self._depth * image.channels - tiles_down * down}")
            code.emit(f"sub r14, {self._rows * self._line}")
            code.emit(f"add r12, {self._depth * self._terms * self._size}")
            code.emit(f"dec qword ptr {CHUNKS_LEFT}", f"jnz {chunk}")

    def _row_of_tiles(self) -> None:
        across, rest = divmod(self._anchor.spatial[3], self._tw)
        if across:
            with self._code.repeated("r10", across):
                self._tile(self._tw)
        if rest:
            self._tile(rest)

    def _sums(self, width: int) -> TileSums:
        """The sums of a tile of ``width`` columns."""
        anchor, image = self._anchor, self._image
        strides, (_, kh, kw, inner, *_) = anchor.geometry["strides"], anchor.reduction
        apart = anchor.geometry["dilation"]
        at = [(h, w) for h in range(self._th) for w in range(width)]
        return TileSums(
            tuple(h * strides[0] * image.row + w * strides[1] * image.pixel for h, w in at),
            tuple(block * self._panel for block in range(self._to)),
            (
                SumLoop(self._depth, image.channels),
                SumLoop(kh, apart[0] * image.row),
                SumLoop(kw, apart[1] * image.pixel),
                SumLoop(inner, image.channel),
            ),
            self._unroll,
            self._prefetch,
            self._product,
            self._resident,
            self._vectors,
        )

    def _tile(self, width: int) -> None:
        """One tile of ``width`` columns; rbx and r14 go on to the next."""
        code, anchor, image = self._code, self._anchor, self._image
        at = [(h, w) for h in range(self._th) for w in range(width)]
        tile = self._sums(width)
        strides = anchor.geometry["strides"]
        results = [[k * self._plane + h * self._line + w * self._size for h, w in at] for k in range(self._to)]
        code.emit("mov rdi, rbx", "mov rsi, r12")
        self._epilogue.tile(code, tile, results, SCRATCH, (self._chunks, CHUNKS_LEFT))
        code.emit(f"add rbx, {width * strides[1] * image.pixel}", f"add r14, {width * self._size}")

    def _ahead(self) -> Prefetch | None:
        """Which lines of weights each turn of a loop of the sum asks for, as ``conv2d._prefetch`` has them."""
        anchor, cut = self._anchor, self._chunks > 1
        tiles = self._tiles if cut or self._inner else self._tiles * self._row_groups
        streams = self._to if cut else 1
        vectors = self._to * (self._depth if cut else anchor.reduction[0]) * self._terms
        trips = [self._depth, *anchor.reduction[1:3], anchor.reduction[3] // self._unroll]
        share = share_of_lines(vectors, streams, tiles, trips)
        if share is None:
            return None
        level, lines = share
        places = [stream * self._panel + line * self._size for stream in range(streams) for line in range(lines)]
        return Prefetch(level, tuple(places), lines * self._size)

    def _start_ahead(self) -> None:
        """r9 to the weights of the next blocks: to the share of this job's first tile."""
        code, asked = self._code, self._prefetch
        if asked is None or self._chunks > 1:
            return
        code.emit(f"lea r9, [r12+{self._to * self._panel}]")
        if not self._inner:
            trips = [self._depth, *self._anchor.reduction[1:3], self._anchor.reduction[3] // self._unroll]
            passes = math.prod(trips[: asked.loop + 1])
            code.emit(f"imul rcx, rdi, {self._tiles * passes * asked.step}", "add r9, rcx")
