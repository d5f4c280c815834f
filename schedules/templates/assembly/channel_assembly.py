"""Channels picked from blocked images, in AVX-512 (``common/movements.py`` says what is computed).

A job is a range of the pixels, of every image and every block of the result:

    for images:                                   [rsp]: how many are left    [rsp+8]: its number
        for blocks of the result, written out:    where the numbers of its source blocks go
            for pixels of the job:                r14: the place    a permutation of each source block, merged by masks
"""

from __future__ import annotations

import math

import numpy as np
from tvm import tirx

from schedules.config import Config
from schedules.target import Target
from schedules.templates.assembly.assembly_text import VECTOR_BYTES, AssemblyText
from schedules.templates.assembly.elements import SIZES, check_reach
from schedules.templates.assembly.vectors import OutOfScope

LANES = 16

POINTERS = ("rsi", "r8", "r9", "rdx", "rcx", "rax", "rbx", "r10")
"""Registers for the source blocks of one block; its first has no mask, and there are seven others."""

MOST_BLOCKS = 64
"""Blocks of the result, each of which has code of its own. Heuristic, not measured."""

REGISTERS = {4: "zmm", 2: "ymm", 1: "xmm"}
"""Bytes of a number → registers of sixteen."""

INDICES = 24
"""The first of the registers that say where a block's numbers come from."""


class ChannelPicksAssembly:
    """Writes one kernel.

    Args:
        order: as ``movements.picked_order`` finds it.
        symbol: the kernel's name.

    Raises:
        OutOfScope: for a kernel that is left to the compiler.
    """

    def __init__(
        self, func: tirx.PrimFunc, order: tuple[int, ...], config: Config, target: Target, symbol: str
    ) -> None:
        shapes = [[int(extent) for extent in param.ty.shape] for param in func.params]
        self._dtype = str(func.params[-1].ty.dtype)
        if not target.broadcast_operands or self._dtype not in SIZES or shapes[-1][4] != LANES:
            raise OutOfScope("another instruction set, other numbers or other blocks")
        check_reach(*(math.prod(shape) * SIZES[self._dtype] for shape in shapes))
        self._blocks = [(part, block) for part, shape in enumerate(shapes[:-1]) for block in range(shape[1])]
        self._depths = [shape[1] for shape in shapes]
        self._order = np.asarray(order).reshape(-1, LANES)
        if len(self._order) > MOST_BLOCKS or any(len(np.unique(o // LANES)) > len(POINTERS) for o in self._order):
            raise OutOfScope("too many blocks")
        self._images, self._pixels = shapes[-1][0], shapes[-1][2] * shapes[-1][3]
        self._vector = LANES * SIZES[self._dtype]
        self._code, self._tensors = AssemblyText(symbol), len(shapes)
        self._jobs = min(config.integer("chunks"), self._pixels)

    def text(self) -> str:
        """The whole kernel."""
        return self._code.of_jobs("pixels", self._tensors, self._jobs, VECTOR_BYTES, self._job)

    def _job(self) -> None:
        code, per_job = self._code, -(-self._pixels // self._jobs)
        over, image = code.label("over"), code.label("image")
        # r12, r13: bytes of a block before the job's first pixel, and before what follows its last one
        code.emit(f"imul r12, r15, {per_job}", f"lea r13, [r12+{per_job}]", f"mov eax, {self._pixels}", "cmp r13, rax")
        code.emit("cmovg r13, rax", "cmp r12, r13", f"jge {over}", f"imul r12, r12, {self._vector}")
        code.emit(f"imul r13, r13, {self._vector}", f"mov qword ptr [rsp], {self._images}", "mov qword ptr [rsp+8], 0")
        code.place(image)
        for number in range(len(self._order)):
            self._block(number)
        code.emit("inc qword ptr [rsp+8]", "dec qword ptr [rsp]", f"jnz {image}")
        code.place(over)

    def _point(self, register: str, tensor: int, block: int) -> None:
        """``register`` at the first pixel of a block of the image in [rsp+8]."""
        self._code.emit(f"imul {register}, [rsp+8], {self._depths[tensor] * self._pixels * self._vector}")
        self._code.emit(f"add {register}, [r11+{8 * tensor}]", f"add {register}, {block * self._pixels * self._vector}")

    def _block(self, number: int) -> None:
        """One block of the result."""
        code, picked, size = self._code, self._order[number], SIZES[self._dtype]
        registers = REGISTERS[size]
        sources = list(dict.fromkeys((picked // LANES).tolist()))
        for place, source in enumerate(sources):
            self._point(POINTERS[place], *self._blocks[source])
            indices = code.table((picked % LANES).astype(f"<i{size}").tobytes())
            code.emit(f"vmovdqu32 {registers}{INDICES + place}, [rip+{indices}]")
            if place:
                lanes = sum(1 << lane for lane in np.flatnonzero(picked // LANES == source).tolist())
                code.emit(f"mov edi, {lanes}", f"kmovw k{place}, edi")
        self._point("rdi", self._tensors - 1, number)
        pixel = code.label("pixel")
        code.emit("mov r14, r12", ".p2align 4")
        code.place(pixel)
        for place in range(len(sources)):
            self._permuted(size, place)
        code.emit(f"vmovdqu32 [rdi+r14], {registers}0", f"add r14, {self._vector}", "cmp r14, r13", f"jl {pixel}")

    def _permuted(self, size: int, place: int) -> None:
        """Vector 0 takes what it has of a source block."""
        mask, source = f"{{k{place}}}" if place else "", f"[{POINTERS[place]}+r14]"
        if size == 4:
            self._code.emit(f"vpermps zmm0{mask}, zmm{INDICES + place}, {source}")
        elif size == 2:
            self._code.emit(f"vpermw ymm0{mask}, ymm{INDICES + place}, {source}")
        else:
            self._code.emit(f"vmovdqu xmm1, {source}", f"vpshufb xmm0{mask}, xmm1, xmm{INDICES + place}")
