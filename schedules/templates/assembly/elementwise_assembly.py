"""Chains of element-wise arithmetic, and concatenations, in AVX-512 (``cpu/elementwise.py`` has the knobs).

A result is a row of vectors, cut into as many jobs as the knob ``chunks`` says. Vectors of a *plane* (the axes behind
one of the result's) lie together; from one plane to the next a tensor goes on, starts again, or goes on by one vector:

    for planes of a job, for their vectors:        r14: the vector's number    r12: vectors left    r13: in the plane
        the chain's value                          r10, rbx: vectors of this plane left, and of this job in it
"""

from __future__ import annotations

import math

from tvm import tirx
from tvm.ir.expr import TensorLoad

from schedules.config import Config
from schedules.target import Target
from schedules.templates.assembly.assembly_text import VECTOR_BYTES, AssemblyText
from schedules.templates.assembly.element_writer import Writer, hold, most_held
from schedules.templates.assembly.elements import SIZES, Operand, check_reach
from schedules.templates.assembly.epilogue_code import check_result, read_epilogue, write_result
from schedules.templates.assembly.vectors import OutOfScope, vectors_of
from schedules.templates.common.structure import Anchor, blocks_in_order, nodes_below

POINTERS = ("rsi", "r8", "r9", "rdx", "rcx", "rax")
"""Registers for what is read."""

CHANNEL, PLANE = "[rsp]", "[rsp+8]"
"""Places on the stack: of the plane, its number along its last axis, and its number."""

MOST_WRITTEN_OUT = 8
"""Vectors that stand one behind the other. Heuristic, not measured."""

MOST_SEGMENTS = 32
"""Pieces of memory that a concatenation may copy. Heuristic, not measured: each has code of its own."""

ALONG_RESULT, REPEATED, BROADCAST = "along the result", "repeated", "broadcast"
"""How a tensor is read: as the result is written, one plane over and over, or one vector for each plane."""


class ElementwiseAssembly:
    """Writes one kernel.

    Args:
        func: the normalised program of ``anchor``.
        symbol: the kernel's name.

    Raises:
        OutOfScope: for a kernel that is left to the compiler.
    """

    def __init__(self, func: tirx.PrimFunc, anchor: Anchor, config: Config, target: Target, symbol: str) -> None:
        sizes, vectors = anchor.spatial, vectors_of(target)
        self._lanes = vectors.lanes
        if anchor.shapes[-1] != sizes or not sizes or sizes[-1] % vectors.lanes or 0 in sizes:
            raise OutOfScope("no whole vectors")
        check_reach(*(math.prod(shape) * 4 for shape in anchor.shapes))
        program = read_epilogue(func, "", (*anchor.prologue, anchor.block))
        self._code, self._tensors = AssemblyText(symbol, vectors), len(anchor.shapes)
        self._values, self._operands = program.fused(), program.operands()
        self._dtype = str(func.params[-1].ty.dtype)
        check_result(self._values, self._dtype)
        if len(self._operands) > len(POINTERS):
            raise OutOfScope("more tensors than pointers")
        held = most_held(tuple(self._values), vectors, vectors.count - 1)
        self._own = vectors.count - held  # registers of one vector; the others hold constants
        self._held: dict[int, int] = {}
        self._vectors = math.prod(sizes) // self._lanes
        self._split = next((at for at in range(len(sizes)) if all(self._way(o, sizes, at) for o in self._operands)), -1)
        if self._split < 0:
            raise OutOfScope("tensors that lie in other orders")
        self._ways = {operand: self._way(operand, sizes, self._split) for operand in self._operands}
        self._inner = math.prod(sizes[self._split :]) // self._lanes
        self._channels = sizes[self._split - 1] if self._split else 1
        self._jobs = min(config.integer("chunks"), self._vectors)
        self._unroll = max(1, min(MOST_WRITTEN_OUT, config.integer("vector") * config.integer("unroll") // self._lanes))

    def _way(self, operand: Operand, sizes: tuple[int, ...], split: int) -> str:
        """Return how ``operand`` is read, planes being the axes from ``split`` on; empty if that is not written."""
        dense = tuple(math.prod(sizes[at + 1 :]) if extent > 1 else 0 for at, extent in enumerate(sizes))
        if operand.strides == dense:
            return ALONG_RESULT
        if operand.strides == (0,) * split + dense[split:]:
            return REPEATED
        own = [at for at, stride in enumerate(operand.strides[:-1]) if stride]
        if sizes[-1] == self._lanes and split < len(sizes) and set(own) <= {split - 1}:
            return BROADCAST
        return ""

    def text(self) -> str:
        """The whole kernel.

        Raises:
            OutOfScope: if registers do not suffice.
        """
        return self._code.of_jobs("elements", self._tensors, self._jobs, VECTOR_BYTES, self._job)

    def _job(self) -> None:
        code, per_job = self._code, -(-self._vectors // self._jobs)
        over, plane = code.label("over"), code.label("plane")
        code.emit(f"imul r14, r15, {per_job}", f"mov r12, {self._vectors}", "sub r12, r14", f"mov eax, {per_job}")
        code.emit("cmp r12, rax", "cmovg r12, rax", "test r12, r12", f"jle {over}")
        self._held = hold(code, self._values, range(self._own, code.vectors.count))
        code.emit(
            "mov eax, r14d", "xor edx, edx", f"mov ecx, {self._inner}", "div ecx", f"mov {PLANE}, rax", "mov r13d, edx"
        )
        code.place(plane)
        code.emit(f"mov rbx, {self._inner}", "sub rbx, r13", "cmp rbx, r12", "cmovg rbx, r12")
        self._point()
        self._vectors_of_plane()
        code.emit("add r14, rbx", "xor r13d, r13d", f"inc qword ptr {PLANE}", "sub r12, rbx", f"jnz {plane}")
        code.place(over)

    def _point(self) -> None:
        """The pointers, at the vector that comes first."""
        code = self._code
        if BROADCAST in self._ways.values():
            code.emit(
                f"mov eax, {PLANE}", "xor edx, edx", f"mov ecx, {self._channels}", "div ecx", f"mov {CHANNEL}, rdx"
            )
        for (operand, way), pointer in zip(self._ways.items(), POINTERS, strict=False):
            if way == BROADCAST:
                stride = operand.strides[self._split - 1] if self._split else 0
                code.emit(f"imul {pointer}, {CHANNEL}, {stride * operand.size}")
            else:
                number = "r14" if way == ALONG_RESULT else "r13"
                code.emit(f"imul {pointer}, {number}, {self._lanes * operand.size}")
            code.emit(f"add {pointer}, [r11+{8 * operand.parameter}]")
        code.emit(f"imul rdi, r14, {self._lanes * SIZES[self._dtype]}", f"add rdi, [r11+{8 * (self._tensors - 1)}]")

    def _vectors_of_plane(self) -> None:
        """rbx vectors."""
        code = self._code
        many, few, done = code.label("many"), code.label("few"), code.label("done")
        code.emit("mov r10, rbx")
        if self._unroll > 1:
            code.emit(f"cmp r10, {self._unroll}", f"jl {few}", ".p2align 4")
            code.place(many)
            self._some(self._unroll)
            code.emit(f"sub r10, {self._unroll}", f"cmp r10, {self._unroll}", f"jge {many}")
            code.place(few)
        code.emit("test r10, r10", f"jz {done}")
        one = code.label("one")
        code.place(one)
        self._some(1)
        code.emit("dec r10", f"jnz {one}")
        code.place(done)

    def _some(self, count: int) -> None:
        """So many vectors; the pointers go on."""
        code = self._code
        ways = list(zip(self._ways.items(), POINTERS, strict=False))
        for number in range(count):
            places = {
                operand: f"{pointer}+{0 if way == BROADCAST else number * self._lanes * operand.size}"
                for (operand, way), pointer in ways
            }
            register = Writer(code, self._values, 0, range(self._own), places, self._held).write()
            place = number * self._lanes * SIZES[self._dtype]
            write_result(code, self._values, self._dtype, register, f"[rdi+{place}]")
        for (operand, way), pointer in ways:
            if way != BROADCAST:
                code.emit(f"add {pointer}, {count * self._lanes * operand.size}")
        code.emit(f"add rdi, {count * self._lanes * SIZES[self._dtype]}")


class ConcatAssembly:
    """Writes one concatenation: pieces of memory that are copied behind each other.

    Args, Raises: as of ``ElementwiseAssembly``.
    """

    def __init__(self, func: tirx.PrimFunc, axis: int, config: Config, target: Target, symbol: str) -> None:
        (block,) = blocks_in_order(func)
        loads = nodes_below(block.body.value, TensorLoad)
        sources = list(dict.fromkeys(load.source for load in loads))
        numbers = [next((at for at, param in enumerate(func.params) if param.same_as(s)), -1) for s in sources]
        dtype = str(func.params[-1].ty.dtype)
        vectors = vectors_of(target)
        if dtype not in SIZES or -1 in numbers or len(numbers) != len(loads):
            raise OutOfScope("other numbers, or a part that is read twice")
        shapes = [[int(extent) for extent in func.params[number].ty.shape] for number in numbers]
        outer = math.prod(shapes[0][:axis])
        parts = [math.prod(shape[axis:]) * SIZES[dtype] for shape in shapes]
        if outer * len(parts) > MOST_SEGMENTS or any(part % vectors.size for part in parts):
            raise OutOfScope("many pieces, or no whole vectors")
        check_reach(outer * sum(parts))
        self._code, self._tensors, self._size = AssemblyText(symbol, vectors), len(func.params), vectors.size
        self._pieces = [
            (number, turn * part, part) for turn in range(outer) for number, part in zip(numbers, parts, strict=True)
        ]
        self._vectors = outer * sum(parts) // vectors.size
        self._jobs = min(config.integer("chunks"), self._vectors)

    def text(self) -> str:
        """The whole kernel."""
        return self._code.of_jobs("pieces", self._tensors, self._jobs, 0, self._job)

    def _job(self) -> None:
        code, per_job = self._code, -(-self._vectors // self._jobs) * self._size
        # r12, r13: where this job begins and ends in the result
        code.emit(f"imul r12, r15, {per_job}", f"lea r13, [r12+{per_job}]", f"mov eax, {self._vectors * self._size}")
        code.emit("cmp r13, rax", "cmovg r13, rax")
        start = 0
        for number, place, size in self._pieces:
            over, copy = code.label("over"), code.label("copy")
            code.emit(f"mov eax, {start}", "cmp rax, r12", "cmovl rax, r12")  # rax, rcx: what this job has of the piece
            code.emit(f"mov ecx, {start + size}", "cmp rcx, r13", "cmovg rcx, r13", "cmp rax, rcx", f"jge {over}")
            code.emit(f"lea rsi, [rax+{place - start}]", f"add rsi, [r11+{8 * number}]")
            code.emit("mov rdi, rax", f"add rdi, [r11+{8 * (self._tensors - 1)}]", "sub rcx, rax", ".p2align 4")
            code.place(copy)
            code.emit("vmovups v0, [rsi]", "vmovups [rdi], v0", f"add rsi, {self._size}", f"add rdi, {self._size}")
            code.emit(f"sub rcx, {self._size}", f"jg {copy}")
            code.place(over)
            start += size
