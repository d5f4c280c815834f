"""Text for the system's assembler: one kernel of a CPU, called as TVM calls its own.

A kernel is a packed function: (self, arguments, how many, result), an argument 16 bytes, of a tensor the handle in
the second half. It runs its loops over jobs on the runtime's threads, which give each of them a number.

    entry:   pointers of all tensors → closure;  workspaces;  launch(loop, closure) for every loop over jobs
    loop:    its thread's share of the jobs, one after the other

Registers: a loop's body has r15 (job) and r11 (the closure) when it begins, and must leave r15 and rsp.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from schedules.templates.assembly.vectors import AVX512, Vectors
from schedules.templates.cpu.passes import workspace_name

TENSOR = 70
"""TVM's type code of an argument that is an object; a bare ``DLTensor`` has another."""
IN_OBJECT = 24
"""Bytes of an object before its ``DLTensor``."""
SAVED = ("rbx", "r12", "r13", "r14", "r15")
"""Registers that the System V convention leaves to the caller, beside rbp."""
OF_THREAD = 8 * (len(SAVED) + 1)
"""Bytes below rbp where a loop keeps the pointer of a thread's workspace."""
VECTOR_BYTES = 64
"""Bytes of the longest vectors, by which the stack is aligned."""
LAUNCH, ALLOCATE, FREE = HOOKS = tuple(
    f"__TVMBackend{name}" for name in ("ParallelLaunch", "AllocWorkspace", "FreeWorkspace")
)
"""Functions of the runtime."""


class AssemblyText:
    """Lines, labels and constants of one kernel, in Intel's syntax.

    Args:
        symbol: the kernel's name.
        vectors: what its registers v0, v1, … are.
    """

    def __init__(self, symbol: str, vectors: Vectors = AVX512) -> None:
        self.vectors = vectors
        self._symbol = symbol
        self._lines: list[str] = []
        self._constants: dict[int, str] = {}
        self._tables: dict[bytes, str] = {}
        self._data: list[str] = []
        self._labels = 0

    def emit(self, *lines: str) -> None:
        """Add instructions."""
        self._lines.extend(lines)

    def label(self, what: str = "") -> str:
        """A name that is not taken yet, for a place in the code."""
        self._labels += 1
        return f".L{what}{self._labels}"

    def place(self, label: str) -> None:
        """Put ``label`` here."""
        self._lines.append(f"{label}:")

    def constant(self, value: float) -> str:
        """The memory operand that is a vector of one float32."""
        return self.constant_bits(struct.unpack("<I", struct.pack("<f", value))[0])

    def constant_bits(self, bits: int) -> str:
        """Work like ``constant``, of a number of 32 bits."""
        name = self._constants.setdefault(bits, f".Lc{len(self._constants)}")
        return f"dword ptr [rip+{name}]{{1to16}}" if self.vectors.is_evex else f"[rip+{name}]"

    def table(self, content: bytes) -> str:
        """The label of these bytes among the constants."""
        return self._tables.setdefault(content, f".Lt{len(self._tables)}")

    @contextmanager
    def repeated(self, register: str, count: int) -> Iterator[None]:
        """The code within runs ``count`` times; ``register`` counts down to 1."""
        if count == 1:
            yield
            return
        head = self.label("loop")
        self.emit(f"mov {register}, {count}", ".p2align 4")
        self.place(head)
        yield
        self.emit(f"dec {register}", f"jnz {head}")

    def entry(
        self, tensors: int, loops: Sequence[tuple[str, int]], workspace_bytes: int = 0, thread_bytes: int = 0
    ) -> None:
        """The packed function: the closure holds the ``tensors``' data and behind them the workspace's pointer.

        Args:
            loops: labels of the loops over jobs, in order, and the jobs of each. One job is done by the caller: no
                thread is woken for it.
            thread_bytes: what the loops ask for in each thread.
        """
        alone = 8 * (tensors + 1)  # as the runtime tells a thread that there is one: a pointer, and how many
        room = -(-(alone + 16) // 16) * 16
        self.emit(f".globl __tvm_ffi_{self._symbol}", f".type __tvm_ffi_{self._symbol},@function", ".p2align 4")
        self.place(f"__tvm_ffi_{self._symbol}")
        self.emit("push rbx", f"sub rsp, {room}")
        for tensor in range(tensors):
            self.emit(
                f"mov rax, [rsi+{16 * tensor + 8}]",
                f"lea rcx, [rax+{IN_OBJECT}]",
                f"cmp dword ptr [rsi+{16 * tensor}], {TENSOR}",
                "cmove rax, rcx",
                "mov rax, [rax]",
                f"mov [rsp+{8 * tensor}], rax",
            )
        failed = self.label("failed")
        if workspace_bytes + thread_bytes:
            told = workspace_name(self._symbol, workspace_bytes, thread_bytes)
            self._data += [f".globl {told}", f".hidden {told}", f"{told}: .byte 0"]
        if workspace_bytes:
            self._allocate(workspace_bytes)
            self.emit(f"mov [rsp+{8 * tensors}], rax", "mov rcx, rax", "mov eax, -1", "test rcx, rcx", f"jz {failed}")
        done = self.label("done")
        for loop, jobs in loops:
            if jobs == 1:
                self.emit(f"mov dword ptr [rsp+{alone + 8}], 1", f"lea rsi, [rsp+{alone}]", "xor edi, edi")
                self.emit("mov rdx, rsp", f"call {loop}")
            else:
                self.emit(f"lea rdi, [rip+{loop}]", "mov rsi, rsp", "xor edx, edx")
                self._call(LAUNCH)
            if len(loops) > 1:
                self.emit("test eax, eax", f"jnz {done}")
        self.place(done)
        if workspace_bytes:
            self.emit("mov ebx, eax")
            self._free(f"[rsp+{8 * tensors}]")
            self.emit("mov eax, ebx")
        self.place(failed)
        self.emit(f"add rsp, {room}", "pop rbx", "ret")
        self.emit(f".size __tvm_ffi_{self._symbol}, .-__tvm_ffi_{self._symbol}")

    def _call(self, function: str) -> None:
        self.emit(f"mov rax, [rip+{function}@GOTPCREL]", "call [rax]")

    def loop_over_jobs(
        self, label: str, jobs: int, stack_bytes: int, body: Callable[[], None], workspace_bytes: int = 0
    ) -> None:
        """A function of the runtime's threads: ``body`` for every job of this thread's share.

        Args:
            stack_bytes: what ``body`` may use at rsp, which is aligned to a vector.
            workspace_bytes: what else each thread has, at rbp - ``OF_THREAD``.
        """
        room = -(-(stack_bytes + 16) // VECTOR_BYTES) * VECTOR_BYTES
        end, closure = room - 8, room - 16
        head, out, failed = self.label("job"), self.label("out"), self.label("failed")
        self.emit(".p2align 4")
        self.place(label)
        self.emit("push rbp", "mov rbp, rsp", *(f"push {register}" for register in SAVED), "push rax")
        self.emit(f"and rsp, -{VECTOR_BYTES}", f"sub rsp, {room}")
        self.emit(f"mov [rsp+{closure}], rdx", "mov ecx, [rsi+8]", f"lea eax, [rcx+{jobs - 1}]", "xor edx, edx")
        self.emit("div ecx", "mov r15d, eax", "imul r15d, edi", "add eax, r15d", f"mov ecx, {jobs}", "cmp eax, ecx")
        self.emit("cmovg eax, ecx", f"mov [rsp+{end}], rax")
        if workspace_bytes:
            self._allocate(workspace_bytes)
            self.emit(f"mov [rbp-{OF_THREAD}], rax", "test rax, rax", f"jz {failed}")
        self.place(head)
        self.emit(f"cmp r15, [rsp+{end}]", f"jge {out}", f"mov r11, [rsp+{closure}]")
        body()
        self.emit("inc r15", f"jmp {head}")
        self.place(out)
        self.emit("vzeroupper")
        if workspace_bytes:
            self._free(f"[rbp-{OF_THREAD}]")
        self.emit("xor eax, eax", f"lea rsp, [rbp-{8 * len(SAVED)}]")
        self.emit(*(f"pop {register}" for register in reversed(SAVED)), "pop rbp", "ret")
        if workspace_bytes:
            self.place(failed)
            self.emit("mov eax, -1", f"lea rsp, [rbp-{8 * len(SAVED)}]")
            self.emit(*(f"pop {register}" for register in reversed(SAVED)), "pop rbp", "ret")

    def of_jobs(self, name: str, tensors: int, jobs: int, stack_bytes: int, body: Callable[[], None]) -> str:
        """The whole file of a kernel that is one loop over jobs; as ``entry`` and ``loop_over_jobs``."""
        label = self.label(name)
        self.entry(tensors, [(label, jobs)])
        self.loop_over_jobs(label, jobs, stack_bytes, body)
        return self.text()

    def _allocate(self, count: int) -> None:
        """rax: a workspace of ``count`` bytes of floats, or null."""
        self.emit("mov edi, 1", "xor esi, esi", f"mov rdx, {count}", "mov ecx, 2", "mov r8d, 32")  # CPU 0
        self._call(ALLOCATE)

    def _free(self, pointer: str) -> None:
        self.emit("mov edi, 1", "xor esi, esi", f"mov rdx, {pointer}")
        self._call(FREE)

    def text(self) -> str:
        """The whole file."""
        copies = 1 if self.vectors.is_evex else self.vectors.lanes
        constants = [
            line for bits, name in self._constants.items() for line in (f"{name}:", *[f".long {bits}"] * copies)
        ]
        constants += [line for content, name in self._tables.items() for line in (f"{name}:", _bytes(content))]
        hooks = [line for name in HOOKS for line in _hook(name)]
        head = [".intel_syntax noprefix", ".text"]
        data = [".section .rodata", f".p2align {2 if self.vectors.is_evex else 5}", *constants, *self._data]
        lines = [*head, *self._lines, *data, *hooks, '.section .note.GNU-stack,"",@progbits']
        # As compilers lay it out: labels at the margin, then instructions, then operands.
        laid_out = [line if line.endswith(":") else "\t" + line.replace(" ", "\t", 1) for line in lines]
        return self.vectors.spelt("\n".join([*laid_out, ""]))


def _bytes(content: bytes) -> str:
    return f".byte {', '.join(map(str, content))}"


def _hook(name: str) -> list[str]:
    """A pointer that the runtime sets when it loads the library; one for all kernels that are linked together."""
    section = f'.section .bss.{name},"awG",@nobits,{name},comdat'
    return [section, f".weak {name}", f".type {name},@object", ".p2align 3", f"{name}:", ".zero 8", f".size {name}, 8"]
