"""Products of data and weights as text for the system's assembler: what all nests with weights have in common.

job:   r13 its first block of channels or columns    r12 its weights    r9 the weights that are asked for ahead
tile:  rbx its first number    r14 its place in the result (``Epilogue``)    r10 tiles left in the row
stack: rows of tiles left, chunks of the sum left, room for sums, and rows of the image with their borders
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace

from tvm import tirx

from schedules.target import Target
from schedules.templates.assembly.assembly_text import VECTOR_BYTES, AssemblyText
from schedules.templates.assembly.epilogue_code import SCRATCH_BYTES, Epilogue
from schedules.templates.assembly.image_rows import FLOAT
from schedules.templates.assembly.tile_sums import (
    Prefetch,
    SumLoop,
    TileSums,
    add_up,
    check_registers,
    clear,
    product_of,
)
from schedules.templates.assembly.vectors import OutOfScope, vectors_of
from schedules.templates.nests.loop_nest import EARLIER, Loop, Nest, Role

COUNTERS = ("[rsp]", "[rsp+8]")
"""Places on the stack: for rows of tiles, if a job has any, then for chunks."""
SCRATCH, OWN_ROWS = VECTOR_BYTES, VECTOR_BYTES + SCRATCH_BYTES


class ProductText(ABC):
    """The base of the templates of convolutions and matrix products.

    Attributes:
        data, result: bytes from one number to the next along each axis.
        parts: jobs that a row of pixels is divided into.
        tile: the sums of the nest's register tile.
    """

    data: dict[str, int]
    result: dict[str, int]
    tile: TileSums

    def __init__(self, func: tirx.PrimFunc, nest: Nest, target: Target, symbol: str) -> None:
        self.nest, self.anchor, self.vectors = nest, nest.anchor, vectors_of(target)
        self.product, vectors = product_of(nest.anchor.form, target), self.vectors
        self.size = vectors.size
        self.code = AssemblyText(symbol, vectors)
        self.epilogue = Epilogue(func, nest.anchor, vectors)
        self.jobs, self.parts = int(nest.extent(Role.JOB)), int(nest.extent(Role.JOB, axis="ow"))
        self.terms = math.prod(nest.size(axis) for axis in nest.summed if axis != "q")
        self.panel, self.chunk = self.terms * vectors.size, nest.terms * vectors.size
        self.tiles = nest.of(Role.TILE)
        self.chunks_left = COUNTERS[len(self.tiles) - 1]
        self.is_panel_next = nest.of(Role.JOB)[-1].axis == nest.weight_axis

    def numbers(self, axis: str) -> int:
        """Numbers of a tile along an axis."""
        return int(self.nest.extent(Role.REGISTER, axis=axis))

    def places(self, steps: dict[str, int], width: int = 0) -> tuple[int, ...]:
        """Bytes from a tile's first number or result to each; with ``width``, of a tile of so many columns."""
        places = [0]
        for loop in self.nest.of(Role.REGISTER):
            if loop.axis != self.nest.weight_axis:
                count = width if width and loop.axis == "ow" else loop.extent
                places = [place + number * steps[loop.axis] for place in places for number in range(count)]
        return tuple(places)

    def whole_tile(self) -> TileSums:
        """The sums of the nest's register tile.

        Raises:
            OutOfScope: if they leave too few registers for products.
        """
        loops = self.nest.of(Role.SUM, Role.STEP)
        *outer, last, unrolled = (
            SumLoop(loop.extent, self.data[loop.axis] * self._below(loop, loops)) for loop in loops
        )
        tile = TileSums(
            self.places(self.data),
            tuple(block * self.panel for block in range(self.nest.vectors)),
            (*outer, SumLoop(last.trips * unrolled.trips, unrolled.stride)),
            unrolled.trips,
            self._next_panel(),
            self.product,
            vectors=self.vectors,
        )
        check_registers(tile)
        return tile

    @staticmethod
    def _below(loop: Loop, loops: list[Loop]) -> int:
        """Numbers of its axis in one turn of ``loop``."""
        inside = loops[next(at for at, other in enumerate(loops) if other is loop) + 1 :]
        return math.prod(other.extent for other in inside if other.axis == loop.axis)

    def _next_panel(self) -> Prefetch | None:
        """Return which lines of weights each turn of a loop of the sum asks for, of the panel that is read next."""
        nest = self.nest
        if nest.asked is None:
            return None
        level, lines = nest.asked
        places = [stream * self.panel + line * self.size for stream in range(nest.streams) for line in range(lines)]
        return Prefetch(level, tuple(places), lines * self.size)

    def start_ahead(self) -> None:
        """r9 to the weights of the next panel: to the share of this job's first tile."""
        asked, nest = self.tile.prefetch, self.nest
        if asked is None or nest.chunks > 1:
            return
        self.code.emit(f"lea r9, [r12+{nest.vectors * self.panel}]")
        if not self.is_panel_next:
            passes = math.prod(loop.extent for loop in nest.of(Role.SUM)[: asked.loop + 1])
            count, parts = int(nest.extent(Role.TILE)) * passes * asked.step, self.parts
            row = "rdi" if parts == 1 else "rcx"
            self.code.emit(*([f"imul rcx, rdi, {parts}", "add rcx, r8"] if parts > 1 else []))
            self.code.emit(f"imul rcx, {row}, {count}", "add r9, rcx")

    def point_at_results(self, *jobs: tuple[str, int]) -> None:
        """r14: the job's place in the result, from registers with numbers of jobs, and bytes of one."""
        (first, size), *rest = jobs
        self.code.emit(f"imul r14, {first}, {size}")
        for register, size in rest:
            self.code.emit(f"imul rcx, {register}, {size}", "add r14, rcx")

    def point_at_weights(self) -> None:
        """r12: the weights of the job's first block."""
        self.code.emit(f"imul r12, r13, {self.nest.vectors * self.panel}", f"add r12, [r11+{8 * self.anchor.weight}]")

    def all_chunks(self) -> None:
        """The tiles of a job, for every chunk of the sum."""
        code, nest, cut = self.code, self.nest, self.nest.chunks > 1
        if cut:
            chunk = code.label("chunk")
            code.emit(f"mov qword ptr {self.chunks_left}, {nest.chunks}")
            code.place(chunk)
            if self.tile.prefetch is not None:
                code.emit(f"lea r9, [r12+{self.chunk}]")
        self.tiles_of_chunk()
        if cut:
            (loop,) = nest.of(Role.CHUNK)
            axis = self.tiles[0].axis
            rows = nest.size(axis) // int(nest.extent(Role.JOB, axis=axis))
            terms = nest.size(loop.axis) // nest.chunks
            code.emit(f"add rbx, {terms * self.data[loop.axis] - rows * self.data[axis]}")
            code.emit(f"sub r14, {rows * self.result[axis]}", f"add r12, {self.chunk}")
            code.emit(f"dec qword ptr {self.chunks_left}", f"jnz {chunk}")

    @abstractmethod
    def tiles_of_chunk(self) -> None:
        """All tiles of a job, of one chunk of the sum."""

    @abstractmethod
    def text(self) -> str:
        """Return the kernel.

        Raises:
            OutOfScope: if registers do not suffice for the epilogue.
        """

    def results(self, width: int = 0) -> list[list[int]]:
        """``places`` of results, by vector of weights, by number."""
        block, places = self.result[self.nest.weight_axis], self.places(self.result, width)
        return [[number * block + place for place in places] for number in range(self.nest.vectors)]

    def one_tile(self, tile: TileSums, width: int = 0) -> None:
        """A tile's sums and results; with ``width``, of so many columns."""
        self.code.emit("mov rdi, rbx", "mov rsi, r12")
        self.epilogue.tile(self.code, tile, self.results(width), SCRATCH, (self.nest.chunks, self.chunks_left))


class ColumnsText(ProductText):
    """A product of a matrix and packed weights.

    job: r13 the group of panels, rdi the group of rows, of 32 bits
    """

    def __init__(self, func: tirx.PrimFunc, nest: Nest, target: Target, symbol: str) -> None:
        anchor, vectors = nest.anchor, vectors_of(target)
        if anchor.prologue or min(anchor.data, anchor.weight) < 0:
            raise OutOfScope("numbers that are computed first")
        if nest.lanes != vectors.lanes or len(anchor.shapes[anchor.data]) != 2:
            raise OutOfScope("vectors of another length")
        super().__init__(func, nest, target, symbol)
        (m, n), (k, *_) = anchor.spatial, anchor.reduction
        self.data = {"m": k * FLOAT, "k": FLOAT}
        self.result = {"m": n * FLOAT, "n": vectors.size}
        self.rows = m // int(nest.extent(Role.JOB, axis="m"))
        self.tile = self.whole_tile()

    def text(self) -> str:
        """Return the kernel: one loop over jobs."""
        return self.code.of_jobs("product", len(self.anchor.shapes), self.jobs, OWN_ROWS, self._job)

    def _job(self) -> None:
        code, nest = self.code, self.nest
        code.emit("mov eax, r15d", "xor edx, edx", f"mov ecx, {nest.of(Role.JOB)[1].extent}", "div ecx")
        panel, rows = ("edx", "eax") if self.is_panel_next else ("eax", "edx")
        code.emit(f"mov r13d, {panel}", f"mov edi, {rows}")
        self.point_at_weights()
        self.point_at_results(("rdi", self.rows * self.result["m"]), ("r13", nest.vectors * self.result["n"]))
        code.emit(f"imul r13, r13, {nest.vectors}")
        code.emit(f"imul rbx, rdi, {self.rows * self.data['m']}", f"add rbx, [r11+{8 * self.anchor.data}]")
        self.start_ahead()
        self.all_chunks()

    def tiles_of_chunk(self) -> None:
        """Tiles of rows, of which the last one may begin earlier."""
        code, nest, rows, down = self.code, self.nest, self.numbers("m"), self.tiles[0].extent
        twice = down * rows - self.rows  # rows that a ragged last tile computes a second time
        assert not twice or nest.last_tile == EARLIER
        with code.repeated("r10", down):
            if nest.bytes_ahead:
                self._one_row()
            else:
                self.one_tile(self.tile)
            code.emit(f"add rbx, {rows * self.data['m']}", f"add r14, {rows * self.result['m']}")
            if twice:
                before = code.label("before")
                code.emit("cmp r10, 2", f"jne {before}")
                code.emit(f"sub rbx, {twice * self.data['m']}", f"sub r14, {twice * self.result['m']}")
                code.place(before)

    def _one_row(self) -> None:
        """A vector × matrix product: every step asks for a later one, at a panel's end for one of the next job."""
        code, tile, ahead = self.code, self.tile, self.nest.bytes_ahead
        code.emit("mov rdi, rbx", "mov rsi, r12")
        clear(code, tile)
        last = min(self.terms, ahead // self.size)
        before = self.terms - last
        for done, terms, further in ((0, before, 0), (before, last, (self.nest.vectors - 1) * self.panel)):
            if not terms:
                continue
            if done:
                code.emit(f"lea rdi, [rbx+{done * FLOAT}]", f"lea rsi, [r12+{done * self.size}]")
            first = ahead + further
            lines = [place + first + line * self.size for place in tile.panels for line in range(tile.unroll)]
            asked = Prefetch(0, tuple(lines), 0, "rsi", "t0")
            add_up(code, replace(tile, loops=(SumLoop(terms, FLOAT),), prefetch=asked))
        self.epilogue.finish(code, tile, self.results(), SCRATCH)
