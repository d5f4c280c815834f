"""Plain images to images in blocks of sixteen channels and back, in AVX-512 (``common/movements.py`` has the computes).

Sixteen pixels of sixteen channels are a tile, which is turned in registers. Tiles lie one behind another in the blocked
image, a job is a range of them:

    for tiles:    r12: which of its plane    r13: pixels of the plane that are left, r14: the plane, rbx: its block
        rsi: the tile in the blocked image, rdi: in the plain one
"""

from __future__ import annotations

import math

from tvm import tirx

from schedules.config import Config
from schedules.target import Target
from schedules.templates.assembly.assembly_text import VECTOR_BYTES, AssemblyText
from schedules.templates.assembly.elements import SIZES, check_reach
from schedules.templates.assembly.vectors import OutOfScope
from schedules.templates.common.movements import SIDE

TILES_LEFT, OF_IMAGE = "[rsp]", "[rsp+8]"
"""Places on the stack: tiles of the job that are left, and the number of the image."""


class BlockAssembly:
    """Writes one kernel.

    Args:
        to_blocks: whether the result is the blocked image.
        symbol: the kernel's name.

    Raises:
        OutOfScope: for a kernel that is left to the compiler.
    """

    def __init__(self, func: tirx.PrimFunc, to_blocks: bool, config: Config, target: Target, symbol: str) -> None:
        shapes = [tuple(int(extent) for extent in param.ty.shape) for param in func.params]
        plain, blocked = shapes if to_blocks else shapes[::-1]
        dtype = str(func.params[0].ty.dtype)
        if not target.broadcast_operands or SIZES.get(dtype) != 4 or blocked[-1] != SIDE:
            raise OutOfScope("another instruction set, other numbers or other blocks")
        check_reach(*(4 * math.prod(shape) for shape in shapes))
        self._to_blocks, self._channels, self._blocks = to_blocks, plain[1], blocked[1]
        self._planes, self._pixels = blocked[0] * blocked[1], plain[2] * plain[3]
        self._tiles = -(-self._pixels // SIDE)
        self._code = AssemblyText(symbol)
        self._jobs = min(config.integer("chunks"), self._planes * self._tiles)

    def text(self) -> str:
        """The whole kernel."""
        return self._code.of_jobs("tiles", 2, self._jobs, VECTOR_BYTES, self._job)

    def _job(self) -> None:
        code, total = self._code, self._planes * self._tiles
        per_job = -(-total // self._jobs)
        over, tile, cut = (code.label(what) for what in ("over", "tile", "cut"))
        code.emit(
            f"imul rax, r15, {per_job}", f"mov ecx, {total}", "sub rcx, rax", f"mov edx, {per_job}", "cmp rcx, rdx"
        )
        code.emit("cmovg rcx, rdx", "test rcx, rcx", f"jle {over}", f"mov {TILES_LEFT}, rcx")
        code.emit("xor edx, edx", f"mov ecx, {self._tiles}", "div ecx", "mov r14d, eax", "mov r12d, edx")
        code.emit("xor edx, edx", f"mov ecx, {self._blocks}", "div ecx", "mov ebx, edx", f"mov {OF_IMAGE}, rax")
        code.emit("mov eax, 0xffff", "kmovw k1, eax")
        if self._pixels % SIDE:
            code.emit(f"mov eax, {(1 << self._pixels % SIDE) - 1}", "kmovw k2, eax")
        self._point()
        code.emit(f"imul rax, r12, {SIDE}", f"mov r13d, {self._pixels}", "sub r13, rax")
        code.place(tile)
        last_channels = self._channels % SIDE
        if self._pixels % SIDE:
            code.emit(f"cmp r13, {SIDE}", f"jl {cut}")
        self._either_block(SIDE, last_channels)
        code.emit(f"add rsi, {SIDE * VECTOR_BYTES}", f"add rdi, {SIDE * 4}", f"sub r13, {SIDE}")
        if self._pixels % SIDE:
            after = code.label("after")
            code.emit(f"jmp {after}")
            code.place(cut)
            self._either_block(self._pixels % SIDE, last_channels)
            code.emit("xor r13d, r13d")
            code.place(after)
        code.emit(f"dec qword ptr {TILES_LEFT}", f"jz {over}", "test r13, r13", f"jg {tile}")
        code.emit("xor r12d, r12d", "inc r14", "inc rbx", f"mov r13d, {self._pixels}")
        same = code.label("same")
        code.emit(f"cmp rbx, {self._blocks}", f"jl {same}", "xor ebx, ebx", f"inc qword ptr {OF_IMAGE}")
        code.place(same)
        self._point()
        code.emit(f"jmp {tile}")
        code.place(over)

    def _point(self) -> None:
        """The pointers, at tile r12 of plane r14."""
        plain, blocked = (0, 1) if self._to_blocks else (1, 0)
        code = self._code
        code.emit(f"imul rsi, r14, {self._pixels * VECTOR_BYTES}", f"imul rax, r12, {SIDE * VECTOR_BYTES}")
        code.emit("add rsi, rax", f"add rsi, [r11+{8 * blocked}]")
        code.emit(f"imul rdi, {OF_IMAGE}, {self._channels * self._pixels * 4}", f"add rdi, [r11+{8 * plain}]")
        code.emit(f"imul rax, rbx, {SIDE * self._pixels * 4}", "add rdi, rax")
        code.emit(f"imul rax, r12, {SIDE * 4}", "add rdi, rax")

    def _either_block(self, pixels: int, last_channels: int) -> None:
        """A tile of so many pixels, of a whole block or of the last one with its channels."""
        code = self._code
        if not last_channels:
            self._tile(pixels, SIDE)
            return
        last, done = code.label("last"), code.label("done")
        if self._blocks > 1:
            code.emit(f"cmp rbx, {self._blocks - 1}", f"je {last}")
            self._tile(pixels, SIDE)
            code.emit(f"jmp {done}")
            code.place(last)
        self._tile(pixels, last_channels)
        code.place(done)

    def _tile(self, pixels: int, channels: int) -> None:
        """Read rows, turn them, and write columns; what the result has no room for is left out."""
        code = self._code
        mask = "k1" if pixels == SIDE else "k2"
        along = [f"[rsi+{VECTOR_BYTES * pixel}]" for pixel in range(pixels)]
        across = [f"[rdi+{4 * self._pixels * channel}]" for channel in range(channels)]
        if self._to_blocks:
            for row, place in enumerate(across):
                code.emit(f"vmovups zmm{row}{{{mask}}}{{z}}, {place}")
        else:
            for row, place in enumerate(along):
                code.emit(f"vmovups zmm{row}, {place}")
        for row in range(channels if self._to_blocks else pixels, SIDE):
            code.emit(f"vpxord zmm{row}, zmm{row}, zmm{row}")
        turned = self._turned()
        if self._to_blocks:
            for row, place in enumerate(along):
                code.emit(f"vmovups {place}, zmm{turned[row]}")
        else:
            for row, place in enumerate(across):
                code.emit(f"vmovups {place}{{{mask}}}, zmm{turned[row]}")

    def _turned(self) -> list[int]:
        """Transpose vectors 0 to 15; the vector that has each of the columns."""
        emit = self._code.emit
        for pair in range(0, SIDE, 2):  # pairs of rows, number by number
            emit(f"vunpcklps zmm{16 + pair}, zmm{pair}, zmm{pair + 1}")
            emit(f"vunpckhps zmm{17 + pair}, zmm{pair}, zmm{pair + 1}")
        for four in range(0, SIDE, 4):  # four rows, pairs of numbers: vector 4q + j has column 4l + j in quarter l
            low, high = (16 + four, 18 + four), (17 + four, 19 + four)
            for column, (one, other) in enumerate((low, high)):
                emit(f"vunpcklpd zmm{four + 2 * column}, zmm{one}, zmm{other}")
                emit(f"vunpckhpd zmm{four + 2 * column + 1}, zmm{one}, zmm{other}")
        for column in range(4):  # quarters of eight rows
            for half in range(2):
                one, other = column + 8 * half, column + 8 * half + 4
                emit(f"vshuff32x4 zmm{16 + column + 8 * half}, zmm{one}, zmm{other}, 0x88")
                emit(f"vshuff32x4 zmm{20 + column + 8 * half}, zmm{one}, zmm{other}, 0xdd")
        turned = [0] * SIDE
        for column in range(4):  # quarters of all rows
            for odd in range(2):
                one, other = 16 + column + 4 * odd, 24 + column + 4 * odd
                for half, choice in enumerate(("0x88", "0xdd")):
                    number = column + 4 * odd + 8 * half
                    emit(f"vshuff32x4 zmm{number}, zmm{one}, zmm{other}, {choice}")
                    turned[number] = number
        return turned
