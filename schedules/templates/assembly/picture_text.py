"""Direct convolutions as text for the system's assembler (``product_text.py`` has the registers)."""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx

from schedules.target import Target
from schedules.templates.assembly.elements import check_reach
from schedules.templates.assembly.image_rows import FLOAT, STACK_BYTES, BorderedRows, Image, border_of, check_image
from schedules.templates.assembly.product_text import COUNTERS, OWN_ROWS, ProductText
from schedules.templates.assembly.tile_sums import (
    TileSums,
    load_weights,
)
from schedules.templates.assembly.vectors import OutOfScope
from schedules.templates.nests.loop_nest import BEFORE, IN_JOBS, Nest, Role


class PictureText(ProductText):
    """A direct convolution: pictures, blocks of channels and rows, whose image may have a border.

    job: eax the picture, r13 the group of blocks, rdi the group of rows, r8 the part of a row, of 32 bits
    """

    thread_bytes = 0
    image: Image
    inner: Image
    bordered: BorderedRows
    own_bytes: int
    down: int

    def __init__(self, func: tirx.PrimFunc, nest: Nest, target: Target, symbol: str) -> None:
        super().__init__(func, nest, target, symbol)
        self.rows = nest.anchor.spatial[2] // int(nest.extent(Role.JOB, axis="oh"))
        self.columns = nest.anchor.spatial[3] // self.parts
        self.measure(func)

    def measure(self, func: tirx.PrimFunc) -> None:
        """Find out how the image is read, and whether all weights lie in registers."""
        anchor, nest = self.anchor, self.nest
        check_image(anchor, self.vectors)
        batch, blocks, height, width, _ = anchor.spatial
        shape, (top, left, bottom, right) = anchor.shapes[anchor.data], anchor.padding
        (_, kh, *_), (down, across) = anchor.reduction, anchor.geometry["strides"]
        dilation, self.down = anchor.geometry["dilation"], down
        self.inner = Image.of(anchor, shape[2], shape[3])
        own = nest.padding == IN_JOBS
        read = (self.rows - 1) * down + (kh - 1) * dilation[0] + 1 if own else shape[2] + top + bottom
        self.image = image = Image.of(anchor, read, shape[3] + left + right) if nest.padding else self.inner
        check_reach(batch * image.batch)
        self.data = {"oh": down * image.row, "ow": across * image.pixel, "ci": image.channels}
        self.data |= {"kh": dilation[0] * image.row, "kw": dilation[1] * image.pixel, "i": image.channel}
        line = width * self.size
        self.result = {"n": blocks * height * line, "o": height * line, "oh": line, "ow": self.size}
        self.bordered = BorderedRows(self.inner, image, top, left, border_of(func) if nest.padding else 0)
        self.own_planes = anchor.reduction[0] * anchor.reduction[3] * FLOAT // image.pixel
        self.own_bytes = self.own_planes * read * image.row if own else 0
        if self.own_bytes > STACK_BYTES:
            raise OutOfScope("a job's rows do not fit the stack")
        whole, rest = divmod(self.columns, self.numbers("ow"))
        self.widths = [self.numbers("ow")] * bool(whole) + [rest] * bool(rest)
        self.across, self.tile = whole, self.whole_tile()
        tiles = [replace(self.tile_of(tile_width), resident=True) for tile_width in (self.numbers("ow"), *self.widths)]
        fitting = all(tile.can_hold and len(tile.free()) >= self.epilogue.registers for tile in tiles)
        self.tile = replace(self.tile, resident=nest.chunks == 1 and fitting)

    def tile_of(self, width: int) -> TileSums:
        """The sums of a tile of ``width`` columns."""
        return self.tile if width == self.numbers("ow") else replace(self.tile, numbers=self.places(self.data, width))

    def text(self) -> str:
        """Return the kernel: a loop that pads all rows, if the nest does so, and one over jobs."""
        code, anchor, tensors = self.code, self.anchor, len(self.anchor.shapes)
        padding, convolution = code.label("padding"), code.label("convolution")
        whole, batch = self.nest.padding == BEFORE, anchor.spatial[0]
        rows = batch * anchor.shapes[anchor.data][1] * self.image.height
        loops = [(padding, rows)] * whole + [(convolution, self.jobs)]
        code.entry(tensors, loops, batch * self.image.batch if whole else 0, self.thread_bytes)
        if whole:
            code.loop_over_jobs(padding, rows, 0, lambda: self.bordered.all_rows(code, anchor.data, tensors, 0))
        code.loop_over_jobs(convolution, self.jobs, OWN_ROWS + self.own_bytes, self.job, self.thread_bytes)
        return code.text()

    def job(self) -> None:
        """All tiles of a job."""
        code, anchor, nest, image = self.code, self.anchor, self.nest, self.image
        code.emit("mov eax, r15d")
        for loop in reversed(nest.of(Role.JOB)[1:]):
            register = {nest.weight_axis: "r13d", "oh": "edi", "ow": "r8d"}[loop.axis]
            code.emit("xor edx, edx", f"mov ecx, {loop.extent}", "div ecx", f"mov {register}, edx")
        self.point_at_results(
            ("rax", self.result["n"]),
            ("r13", nest.vectors * self.result["o"]),
            ("rdi", self.rows * self.result["oh"]),
            *([("r8", self.columns * self.result["ow"])] if self.parts > 1 else []),
        )
        self.point_at_weights()
        self.start_ahead()
        code.emit(f"imul r13, r13, {nest.vectors}")
        # rbx: the picture, from its first channel of this group on
        own, planes = nest.padding == IN_JOBS, self.inner if nest.padding == IN_JOBS else image
        source = len(anchor.shapes) if nest.padding == BEFORE else anchor.data
        code.emit(f"imul rbx, rax, {planes.batch}", f"add rbx, [r11+{8 * source}]")
        if anchor.groups > 1:
            code.emit("mov eax, r13d", "xor edx, edx", f"mov ecx, {anchor.spatial[1] // anchor.groups}", "div ecx")
            code.emit(f"imul rax, rax, {anchor.reduction[0] * planes.channels}", "add rbx, rax")
        if own:
            self._fetch_rows(self.rows * self.down)
        else:
            code.emit(f"imul rdi, rdi, {self.rows * self.down * image.row}", "add rbx, rdi")
            self.skip_columns()
        if self.tile.resident:
            load_weights(code, self.tile)
        self.all_chunks()

    def skip_columns(self) -> None:
        """Rbx to the first pixel of the job's part of a row."""
        if self.parts > 1:
            self.code.emit(f"imul r8, r8, {self.columns * self.data['ow']}", "add rbx, r8")

    def _fetch_rows(self, down: int) -> None:
        """This job's rows of the image with their borders onto the stack; rbx ends there.

        Args:
            down: rows of the image from one job to the next.
        """
        code = self.code
        code.emit(f"imul r10, rdi, {down}", f"sub r10, {self.anchor.padding[0]}", "mov rsi, rbx")
        code.emit(f"lea rbx, [rsp+{OWN_ROWS}]", "mov rdi, rbx")
        with code.repeated("r8", self.own_planes):
            code.emit("mov rdx, r10")
            with code.repeated("rax", self.image.height):
                code.emit("push rax")
                self.bordered.copy(code)
                code.emit("inc edx", "pop rax")
            code.emit(f"add rsi, {self.inner.height * self.inner.row}")

    def tiles_of_chunk(self) -> None:
        """Rows of tiles, whose last one may be narrower."""
        code, (rows, _), width = self.code, self.tiles, self.columns
        row, left = code.label("row"), COUNTERS[0]
        code.emit(f"mov qword ptr {left}, {rows.extent}")
        code.place(row)
        for tile_width in self.widths:
            with code.repeated("r10", self.across if tile_width == self.numbers("ow") else 1):
                self.one_tile(self.tile_of(tile_width), tile_width)
                code.emit(f"add rbx, {tile_width * self.data['ow']}", f"add r14, {tile_width * self.result['ow']}")
        down = self.numbers("oh")
        code.emit(f"add rbx, {down * self.data['oh'] - width * self.data['ow']}")
        code.emit(f"add r14, {down * self.result['oh'] - width * self.result['ow']}")
        code.emit(f"dec qword ptr {left}", f"jnz {row}")
