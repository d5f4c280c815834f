"""Winograd's convolution of float32, written as assembly (``cpu/winograd.py`` has stages and notation).

    knob outer = 0: rows of the image, tiles of V, panels of M and rows of the result, one after the other in parallel
    knob outer = 1: rows of the image in parallel, then chunks of tile rows: V, M and the result of each

V and M have tiles innermost but for the lane: (c, x, y, ty, tx, i) and (o, x, y, ty, tx, b).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tvm import tirx

from schedules.config import Config
from schedules.target import Target
from schedules.templates.assembly.assembly_text import OF_THREAD, VECTOR_BYTES, AssemblyText
from schedules.templates.assembly.elements import check_reach
from schedules.templates.assembly.epilogue_code import Epilogue
from schedules.templates.assembly.image_rows import FLOAT, BorderedRows, Image, border_of, check_image
from schedules.templates.assembly.straight_transform import StraightTransform
from schedules.templates.assembly.tile_sums import Prefetch, SumLoop, TileSums, add_up, clear
from schedules.templates.assembly.vectors import OutOfScope, vectors_of
from schedules.templates.common.prefetch import share_of_lines
from schedules.templates.common.structure import Anchor
from schedules.templates.common.winograd_transforms import AT, BT
from schedules.templates.cpu.winograd import parts_of

COUNT, SECOND, THIRD = "[rsp]", "[rsp+8]", "[rsp+16]"
"""Counters on the stack, and behind them what a transform keeps there."""
SCRATCH = VECTOR_BYTES


@dataclass(frozen=True)
class Tiles:
    """A tensor of transformed tiles.

    Attributes:
        blocks: of channels.
        side: numbers along a side of a tile.
        down, across: tiles.
        vector: bytes of a number of each lane.
    """

    blocks: int
    side: int
    down: int
    across: int
    vector: int

    @property
    def row(self) -> int:
        """Bytes of a row of tiles: of one number of each."""
        return self.across * self.vector

    @property
    def number(self) -> int:
        """Bytes from one number of a tile to the next."""
        return self.down * self.row

    @property
    def block(self) -> int:
        """Bytes from one block of channels to the next."""
        return self.side**2 * self.number

    @property
    def size(self) -> int:
        """Bytes of all."""
        return self.blocks * self.block

    def at(self, base: str, x: int, y: int) -> str:
        """The memory operand of number x, y of the tile whose first is at ``base``."""
        return f"[{base}+{(x * self.side + y) * self.number}]"


class WinogradAssembly:
    """Writes one kernel.

    Args:
        func: the normalised program of ``anchor``.
        symbol: the kernel's name.

    Raises:
        OutOfScope: for a kernel that is left to the compiler.
    """

    def __init__(self, func: tirx.PrimFunc, anchor: Anchor, config: Config, target: Target, symbol: str) -> None:
        if anchor.plain or anchor.form is not None:
            raise OutOfScope("no vectors of floats")
        self._vectors = vectors = vectors_of(target)
        self._size = vectors.size
        check_image(anchor, vectors)
        if anchor.padded and border_of(func):
            raise OutOfScope("a border that is not zero")
        self._anchor, self._code = anchor, AssemblyText(symbol, vectors)
        self._epilogue = Epilogue(func, anchor, vectors)
        self._m = m = config.integer("algorithm")
        self._to, self._th, self._tw, self._rows = (config.integer(name) for name in ("to", "th", "tw", "rows"))
        self._unroll, self._chunked = config.integer("unroll"), config.integer("outer") == 1
        batch, blocks, height, width, _ = anchor.spatial
        self._down, across = -(-height // m), -(-width // m)
        self._parts, self._pieces = (1, 1) if self._chunked else parts_of(config, across)
        inputs = anchor.reduction[0] * anchor.groups
        shape, (top, left, _, _) = anchor.shapes[anchor.data], anchor.padding
        self._given = Image.of(anchor, shape[2], shape[3])
        self._image = Image.of(anchor, self._down * m + 2, across * m + 2)
        self._bordered = BorderedRows(self._given, self._image, top, left)
        rows = self._rows if self._chunked else batch * self._down
        self._v = Tiles(inputs, m + 2, rows, across, vectors.size)
        self._products = replace(self._v, blocks=blocks)
        self._image_bytes = batch * self._image.batch
        check_reach(self._image_bytes + self._v.size + self._products.size)
        self._panel = anchor.reduction[0] * anchor.reduction[3] * vectors.size
        self._into = StraightTransform(self._code, BT[m], SCRATCH)
        self._back = StraightTransform(self._code, AT[m], SCRATCH)
        self._stack = SCRATCH + max(StraightTransform.scratch_bytes(matrix[m], vectors) for matrix in (BT, AT))

    def text(self) -> str:
        """The whole kernel.

        Raises:
            OutOfScope: if registers do not suffice for the epilogue.
        """
        code, anchor, tensors = self._code, self._anchor, len(self._anchor.shapes)
        batch, blocks = anchor.spatial[:2]
        own = self._v.size + self._products.size
        stages = [("rows", batch * self._given.batch // self._given.channels * self._image.height, self._pad_row)]
        if self._chunked:
            stages.append(("chunks", batch * self._down // self._rows, self._chunk))
        else:
            stages.append(("input", self._v.blocks * self._v.down * self._pieces, self._input_row))
            panels = self._v.side**2 * blocks // self._to
            stages.append(("products", panels * self._parts, self._panel_of_products))
            stages.append(("output", batch * blocks * self._down * self._pieces, self._output_row))
        labels = [code.label(name) for name, *_ in stages]
        shared, per_thread = (0, own) if self._chunked else (own, 0)
        loops = [(label, jobs) for label, (_, jobs, _) in zip(labels, stages, strict=True)]
        code.entry(tensors, loops, self._image_bytes + shared, per_thread)
        for label, (_, jobs, body) in zip(labels, stages, strict=True):
            code.loop_over_jobs(label, jobs, self._stack, body, per_thread if body == self._chunk else 0)
        return code.text()

    def _pad_row(self) -> None:
        self._bordered.all_rows(self._code, self._anchor.data, len(self._anchor.shapes), 0)

    def _workspace(self, register: str, offset: int) -> None:
        """``register``: so many bytes into what lies behind the image, which is each thread's own for chunks."""
        where = f"[rbp-{OF_THREAD}]" if self._chunked else f"[r11+{8 * len(self._anchor.shapes)}]"
        self._code.emit(
            f"mov {register}, {where}", f"add {register}, {offset + (0 if self._chunked else self._image_bytes)}"
        )

    def _input_tiles(self) -> None:
        """A row of tiles of one block, or a piece of it: rbx the image's first pixel, r14 the place in V."""
        code, row = self._code, self._image.row
        self._into.begin()
        with code.repeated("r10", self._v.across // self._pieces):
            self._into.tile(
                lambda x, y: f"[rbx+{x * row + y * self._size}]",
                lambda x, y, register: code.emit(f"vmovups {self._v.at('r14', x, y)}, v{register}"),
            )
            code.emit(f"add rbx, {self._m * self._size}", f"add r14, {self._size}")

    def _product_tiles(self) -> None:
        """All tiles of a panel, or of its part r13: rbx its numbers in V, r12 its weights, r14 the place in M."""
        code, v, anchor = self._code, self._v, self._anchor
        rows = v.down // self._th // self._parts
        trips = [anchor.reduction[0], anchor.reduction[3] // self._unroll]
        share = share_of_lines(
            self._to * self._panel // self._size, 1, v.down // self._th * (v.across // self._tw), trips
        )
        prefetch = None
        if share is not None:
            prefetch = Prefetch(share[0], tuple(self._size * line for line in range(share[1])), self._size * share[1])
            code.emit(f"lea r9, [r12+{self._to * self._panel}]")
            if self._parts > 1:
                tiles = rows * (v.across // self._tw)
                code.emit(f"imul rcx, r13, {tiles * math.prod(trips[: share[0] + 1]) * prefetch.step}", "add r9, rcx")
        places = [h * v.row + w * self._size for h in range(self._th) for w in range(self._tw)]
        tile = TileSums(
            tuple(places),
            tuple(block * self._panel for block in range(self._to)),
            (SumLoop(anchor.reduction[0], v.block), SumLoop(anchor.reduction[3], FLOAT)),
            self._unroll,
            prefetch,
            vectors=self._vectors,
        )
        row = code.label("row")
        code.emit(f"mov qword ptr {COUNT}, {rows}")
        code.place(row)
        with code.repeated("r10", v.across // self._tw):
            code.emit("mov rdi, rbx", "mov rsi, r12")
            clear(code, tile)
            add_up(code, tile)
            for block, registers in enumerate(tile.sums()):
                for place, register in zip(places, registers, strict=True):
                    code.emit(f"vmovups [r14+{block * self._products.block + place}], v{register}")
            code.emit(f"add rbx, {self._tw * self._size}", f"add r14, {self._tw * self._size}")
        if self._th > 1:
            code.emit(f"add rbx, {(self._th - 1) * v.row}", f"add r14, {(self._th - 1) * v.row}")
        code.emit(f"dec qword ptr {COUNT}", f"jnz {row}")

    def _output_tiles(self) -> None:
        """Tiles of a row of a block, or of a piece of it.

        rbx its products, r12 rows of the result left, r13 the block, r14 the place, and for pieces r9 columns left.
        """
        code, (_, _, height, width, _) = self._code, self._anchor.spatial
        line = width * self._size
        self._back.begin()
        self._epilogue.hold(code, self._back.spare)
        across = self._products.across // self._pieces
        if self._pieces == 1:
            code.emit(f"mov r9d, {width}")  # columns of the result from here
        with code.repeated("r10", across):
            self._epilogue.begin(code)
            end, over = code.label("end"), [code.label("over") for _ in range(self._m)]

            def store(p: int, q: int, register: int) -> None:
                if q == 0 and p >= (height % self._m or self._m):
                    code.emit(f"cmp r12d, {p}", f"jle {end}")
                if q >= (width % self._m or self._m):
                    code.emit(f"cmp r9d, {q}", f"jle {over[p]}")
                self._epilogue.store(code, register, range(6), 0, p * line + q * self._size)
                if q == self._m - 1:
                    code.place(over[p])

            self._back.tile(lambda x, y: self._products.at("rbx", x, y), store)
            code.place(end)
            code.emit(f"add rbx, {self._size}", f"add r14, {self._m * self._size}", f"sub r9d, {self._m}")

    def _divide(self, count: int) -> None:
        """eax: the quotient of eax and ``count``, edx: the rest."""
        self._code.emit("xor edx, edx", f"mov ecx, {count}", "div ecx")

    def _input_row(self) -> None:
        """Job c · rows of tiles + one of them, and of that one of its pieces."""
        code, v, image = self._code, self._v, self._image
        code.emit("mov eax, r15d")
        if self._pieces > 1:
            self._divide(self._pieces)
            code.emit(f"imul r13d, edx, {v.across // self._pieces}")  # tiles before the piece
        self._divide(v.down)  # eax: c, edx: ty
        self._workspace("r14", 0)
        code.emit(f"imul rcx, rax, {v.block}", "add r14, rcx", f"imul rcx, rdx, {v.row}", "add r14, rcx")
        code.emit("mov r8, rax", "mov eax, edx")
        self._divide(self._down)  # eax: picture, edx: its row of tiles
        code.emit(f"mov rbx, [r11+{8 * len(self._anchor.shapes)}]", f"imul r8, r8, {image.channels}", "add rbx, r8")
        code.emit(
            f"imul rax, rax, {image.batch}", "add rbx, rax", f"imul rdx, rdx, {self._m * image.row}", "add rbx, rdx"
        )
        if self._pieces > 1:
            code.emit(f"imul rcx, r13, {self._m * self._size}", "add rbx, rcx")
            code.emit(f"imul rcx, r13, {self._size}", "add r14, rcx")
        self._input_tiles()

    def _panel_of_products(self) -> None:
        """Job (x, y) · groups of blocks + one of them, and of that one of the parts of its rows of tiles."""
        code, v, anchor = self._code, self._v, self._anchor
        groups, below = anchor.spatial[1] // self._to, v.down // self._parts * v.row
        code.emit("mov eax, r15d")
        if self._parts > 1:
            self._divide(self._parts)
            code.emit("mov r13d, edx")
        code.emit(f"imul r12, rax, {self._to * self._panel}", f"add r12, [r11+{8 * anchor.weight}]")
        self._divide(groups)  # eax: number of the tile, edx: group of blocks
        self._workspace("r14", v.size)
        code.emit(f"imul rcx, rdx, {self._to * self._products.block}", "add r14, rcx")
        code.emit(f"imul rax, rax, {v.number}")
        if self._parts > 1:
            code.emit(f"imul rcx, r13, {below}", "add rax, rcx")
        code.emit("add r14, rax")
        self._panel_products(groups)

    def _panel_products(self, groups: int) -> None:
        """Tiles of one panel; rax: bytes of the transformed image before them, edx: which of ``groups`` of blocks."""
        code, v, anchor = self._code, self._v, self._anchor
        self._workspace("rbx", 0)
        code.emit("add rbx, rax")
        if anchor.groups > 1:
            code.emit("mov eax, edx")
            self._divide(groups // anchor.groups)
            code.emit(f"imul rax, rax, {anchor.reduction[0] * v.block}", "add rbx, rax")
        self._product_tiles()

    def _output_row(self) -> None:
        """Job (picture · blocks + block) · rows of tiles + one of them, and of that one of its pieces."""
        code, products, (_, blocks, height, width, _) = self._code, self._products, self._anchor.spatial
        code.emit("mov eax, r15d")
        if self._pieces > 1:
            self._divide(self._pieces)
            code.emit(f"imul r9d, edx, {products.across // self._pieces}")  # tiles before the piece
        self._divide(self._down)  # eax: picture · blocks + block, edx: row of tiles
        self._workspace("rbx", self._v.size)
        code.emit(
            f"imul r14, rax, {height * width * self._size}",
            f"imul rcx, rdx, {self._m * width * self._size}",
        )
        code.emit("add r14, rcx", f"imul r12d, edx, {-self._m}", f"add r12d, {height}")
        code.emit(f"imul rcx, rdx, {products.row}", "add rbx, rcx")
        self._divide(blocks)  # eax: picture, edx: block
        code.emit("mov r13d, edx", f"imul rdx, rdx, {products.block}", "add rbx, rdx")
        code.emit(f"imul rax, rax, {self._down * products.row}", "add rbx, rax")
        if self._pieces > 1:
            code.emit(f"imul rcx, r9, {self._size}", "add rbx, rcx")
            code.emit(f"imul rcx, r9, {self._m * self._size}", "add r14, rcx")
            code.emit(f"imul r9d, r9d, {-self._m}", f"add r9d, {width}")
        self._output_tiles()

    def _chunk(self) -> None:
        """Job picture · chunks + one of them: all three stages of its rows of tiles."""
        code, v, image, anchor = self._code, self._v, self._image, self._anchor
        _, blocks, height, width, _ = anchor.spatial
        chunks = self._down // self._rows
        self._picture_and_chunk(chunks)
        code.emit(f"mov rbx, [r11+{8 * len(anchor.shapes)}]", f"imul rax, rax, {image.batch}", "add rbx, rax")
        code.emit(f"imul rdx, rdx, {self._rows * self._m * image.row}", "add rbx, rdx")
        self._workspace("r14", 0)
        block, line = code.label("block"), code.label("line")
        code.emit(f"mov qword ptr {SECOND}, {v.blocks}")
        code.place(block)
        code.emit(f"mov qword ptr {COUNT}, {v.down}")
        code.place(line)
        self._input_tiles()
        code.emit(f"add rbx, {self._m * image.row - v.across * self._m * self._size}")
        code.emit(f"dec qword ptr {COUNT}", f"jnz {line}")
        code.emit(f"add rbx, {image.channels - v.down * self._m * image.row}", f"add r14, {v.block - v.number}")
        code.emit(f"dec qword ptr {SECOND}", f"jnz {block}")
        self._chunk_products(blocks)
        self._picture_and_chunk(chunks)
        code.emit(f"imul r14, rax, {blocks * height * width * self._size}")
        code.emit(f"imul rcx, rdx, {self._rows * self._m * width * self._size}", "add r14, rcx")
        code.emit(f"imul r12d, edx, {-self._rows * self._m}", f"add r12d, {height}", "xor r13d, r13d")
        self._workspace("rbx", v.size)
        block, line = code.label("block"), code.label("line")
        code.place(block)
        code.emit(f"mov qword ptr {COUNT}, {v.down}")
        code.place(line)
        self._output_tiles()
        code.emit(f"add r14, {(self._m * width - self._m * v.across) * self._size}", f"sub r12d, {self._m}")
        code.emit(f"dec qword ptr {COUNT}", f"jnz {line}")
        rows = self._rows * self._m
        code.emit(f"add r14, {(height - rows) * width * self._size}", f"add r12d, {rows}")
        code.emit(f"add rbx, {self._products.block - self._products.number}")
        code.emit("inc r13d", f"cmp r13d, {blocks}", f"jl {block}")

    def _picture_and_chunk(self, chunks: int) -> None:
        """eax: the job's picture, edx: its chunk."""
        self._code.emit("mov eax, r15d")
        self._divide(chunks)

    def _chunk_products(self, blocks: int) -> None:
        """All panels of a chunk."""
        code, v, anchor = self._code, self._v, self._anchor
        number, group = code.label("number"), code.label("group")
        groups = blocks // self._to
        code.emit(f"mov r12, [r11+{8 * anchor.weight}]", f"mov qword ptr {SECOND}, 0")
        code.place(number)
        code.emit(f"mov qword ptr {THIRD}, 0")
        code.place(group)
        code.emit(f"mov rax, {SECOND}", f"imul rax, rax, {v.number}", f"mov rdx, {THIRD}")
        self._workspace("r14", v.size)
        code.emit("add r14, rax", f"imul rcx, rdx, {self._to * self._products.block}", "add r14, rcx")
        self._panel_products(groups)
        code.emit(f"add r12, {self._to * self._panel}", f"mov rdx, {THIRD}", "inc rdx", f"mov {THIRD}, rdx")
        code.emit(f"cmp rdx, {groups}", f"jl {group}")
        code.emit(f"mov rdx, {SECOND}", "inc rdx", f"mov {SECOND}, rdx", f"cmp rdx, {v.side**2}", f"jl {number}")
