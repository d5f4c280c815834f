"""Products of a matrix and packed weights in AVX-512, as assembly (``cpu/matmul.py`` has the notation).

job:   r13 its first panel    r12 the panel's weights    r9 the weights that are asked for ahead
tile:  rbx its first row, at the chunk of the sum    r14 its place in the result (``Epilogue``)    r10 tiles left
stack: chunks of the sum left, room for sums
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm import tirx

from schedules.config import Config
from schedules.target import Target
from schedules.templates.assembly.assembly_text import VECTOR_BYTES, AssemblyText
from schedules.templates.assembly.epilogue_code import FLOAT, SCRATCH_BYTES, Epilogue
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
from schedules.templates.common.prefetch import share_of_lines
from schedules.templates.common.structure import Anchor

CHUNKS_LEFT, SCRATCH = "[rsp]", VECTOR_BYTES
"""Places on the stack."""


@dataclass(frozen=True)
class WeightPrefetch:
    """How a product asks for weights ahead.

    Attributes:
        bytes_ahead: of its panel, where x has one row.
        between: steps of the sum from one time to the next; 0 for every step.
        tiles: that pass over a panel, or over a chunk of it.
    """

    bytes_ahead: int
    between: int
    tiles: int


class MatmulAssembly:
    """Writes one kernel.

    Args:
        func: the normalised program of ``anchor``.
        symbol: the kernel's name.

    Raises:
        OutOfScope: for a kernel that is left to the compiler.
    """

    def __init__(
        self, func: tirx.PrimFunc, anchor: Anchor, config: Config, target: Target, prefetch: WeightPrefetch, symbol: str
    ) -> None:
        if anchor.prologue or min(anchor.data, anchor.weight) < 0:
            raise OutOfScope("numbers that are computed first")
        self._vectors = vectors = vectors_of(target)
        self._size = vectors.size
        self._product = product_of(anchor.form, target)
        weight = anchor.shapes[anchor.weight]
        if weight[2] != vectors.lanes or len(anchor.shapes[anchor.data]) != 2:
            raise OutOfScope("vectors of another length")
        self._anchor, self._code, self._prefetch_plan = anchor, AssemblyText(symbol, vectors), prefetch
        self._epilogue = Epilogue(func, anchor, vectors)
        (self._m, self._n), self._k = anchor.spatial, anchor.reduction[0]
        self._tm, self._tn, self._rows = (config.integer(name) for name in ("tm", "tn", "rows"))
        self._unroll, self._depth = config.integer("unroll"), config.integer("depth")
        self._inner = config.integer("outer") == 1
        self._chunks = self._k // self._depth
        self._panel, self._line = self._k * vectors.size, self._n * FLOAT
        self._panels, self._row_groups = weight[0] // self._tn, self._m // self._rows
        self._tile = self._sums()
        check_registers(self._tile)

    def text(self) -> str:
        """The whole kernel.

        Raises:
            OutOfScope: if registers do not suffice for the epilogue.
        """
        loop = self._code.label("product")
        self._code.entry(len(self._anchor.shapes), [(loop, self._panels * self._row_groups)])
        self._code.loop_over_jobs(loop, self._panels * self._row_groups, SCRATCH + SCRATCH_BYTES, self._job)
        return self._code.text()

    def _sums(self) -> TileSums:
        each = self._prefetch_plan.between * self._unroll
        loops = (SumLoop(self._depth // each, each * FLOAT), SumLoop(each, FLOAT)) if each else ()
        whole = TileSums(
            tuple(row * self._k * FLOAT for row in range(self._tm)),
            tuple(panel * self._panel for panel in range(self._tn)),
            loops or (SumLoop(self._depth, FLOAT),),
            self._unroll,
            product=self._product,
            vectors=self._vectors,
        )
        streams = self._tn if self._chunks > 1 else 1
        vectors = self._tn * (self._depth if self._chunks > 1 else self._k)
        share = share_of_lines(vectors, streams, self._prefetch_plan.tiles, [self._turns(whole)])
        if share is None or self._m == 1:
            return whole
        lines = [stream * self._panel + line * self._size for stream in range(streams) for line in range(share[1])]
        return replace(whole, prefetch=Prefetch(0, tuple(lines), share[1] * self._size))

    def _turns(self, tile: TileSums) -> int:
        """Return the turns of the loop of a tile's sum that asks for weights."""
        return tile.loops[0].trips // (1 if len(tile.loops) > 1 else self._unroll)

    def _job(self) -> None:
        code, anchor, tile = self._code, self._anchor, self._tile
        # r13: the group of panels, edi: the group of rows
        count = self._panels if self._inner else self._row_groups
        code.emit("mov eax, r15d", "xor edx, edx", f"mov ecx, {count}", "div ecx")
        code.emit(*(("mov r13d, edx", "mov edi, eax") if self._inner else ("mov r13d, eax", "mov edi, edx")))
        code.emit(f"imul r12, r13, {self._tn * self._panel}", f"add r12, [r11+{8 * anchor.weight}]")
        code.emit(f"imul r14, rdi, {self._rows * self._line}", f"imul rcx, r13, {self._tn * self._size}")
        code.emit("add r14, rcx", f"imul r13, r13, {self._tn}")
        code.emit(f"imul rbx, rdi, {self._rows * self._k * FLOAT}", f"add rbx, [r11+{8 * anchor.data}]")
        down, cut = -(-self._rows // self._tm), self._chunks > 1
        twice = down * self._tm - self._rows  # rows that a ragged last tile computes a second time
        if tile.prefetch is not None and not cut:
            code.emit(f"lea r9, [r12+{self._tn * self._panel}]")
            if not self._inner:
                code.emit(f"imul rcx, rdi, {down * self._turns(tile) * tile.prefetch.step}", "add r9, rcx")
        if cut:
            chunk = code.label("chunk")
            code.emit(f"mov qword ptr {CHUNKS_LEFT}, {self._chunks}")
            code.place(chunk)
            if tile.prefetch is not None:
                code.emit(f"lea r9, [r12+{self._depth * self._size}]")
        places = [[row * self._line + panel * self._size for row in range(self._tm)] for panel in range(self._tn)]
        with code.repeated("r10", down):
            code.emit("mov rdi, rbx", "mov rsi, r12")
            if self._m == 1:
                self._one_row(places)
            else:
                self._epilogue.tile(code, tile, places, SCRATCH, (self._chunks, CHUNKS_LEFT))
            code.emit(f"add rbx, {self._tm * self._k * FLOAT}", f"add r14, {self._tm * self._line}")
            if twice:
                before = code.label("before")
                code.emit("cmp r10, 2", f"jne {before}")
                code.emit(f"sub rbx, {twice * self._k * FLOAT}", f"sub r14, {twice * self._line}")
                code.place(before)
        if cut:
            code.emit(f"add rbx, {self._depth * FLOAT - self._rows * self._k * FLOAT}")
            code.emit(f"sub r14, {self._rows * self._line}", f"add r12, {self._depth * self._size}")
            code.emit(f"dec qword ptr {CHUNKS_LEFT}", f"jnz {chunk}")

    def _one_row(self, places: list[list[int]]) -> None:
        """A vector × matrix product: every step asks for a later one, at a panel's end for one of the next job."""
        clear(self._code, self._tile)
        last = min(self._k, self._prefetch_plan.bytes_ahead // self._size)
        before = self._k - last
        for done, terms, further in ((0, before, 0), (before, last, (self._tn - 1) * self._panel)):
            if not terms:
                continue
            if done:
                self._code.emit(f"lea rdi, [rbx+{done * FLOAT}]", f"lea rsi, [r12+{done * self._size}]")
            first = self._prefetch_plan.bytes_ahead + further
            lines = [place + first + line * self._size for place in self._tile.panels for line in range(self._unroll)]
            asked = Prefetch(0, tuple(lines), 0, "rsi", "t0")
            add_up(self._code, replace(self._tile, loops=(SumLoop(terms, FLOAT),), prefetch=asked))
        self._epilogue.finish(self._code, self._tile, places, SCRATCH)
