"""The check calls kernels with a NaN in every vector register.

A kernel in assembly enters its loop before anything else runs on the calling thread. A register that it forgot to clear
would hold what the caller left there, which is mostly zero, and the kernel would look right.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tvm_ffi

from autotune.measure.kernel_builder import Builder, can_assemble
from schedules.target import Target

ENTRY, KERNEL = "tune_dirty", "tune_dirty_kernel"

WIDE = 32
"""Bytes of the narrowest vector registers that kernels in assembly use."""


def dirty_calls(builder: Builder, target: Target) -> DirtyCalls | None:
    """Return ``DirtyCalls`` for kernels of ``target``; None if this machine cannot assemble any.

    Raises:
        CompileError: if the assembler refuses the function.
        OSError: if no temporary file can be written or loaded.
    """
    if not can_assemble(target) or target.vector_bytes < WIDE:
        return None
    with TemporaryDirectory(prefix="tune-dirty-") as folder:
        library = str(Path(folder) / "dirty.so")
        builder.assemble(text(target), library)
        return DirtyCalls(library)


def text(target: Target) -> str:
    """Return a packed function that fills the vector registers and jumps to the address that is in ``KERNEL``."""
    if target.vector_bytes > WIDE:
        fill = [f"vpternlogd zmm{n}, zmm{n}, zmm{n}, 255" for n in range(target.vector_registers)]
    else:
        fill = [f"vpcmpeqd ymm{n}, ymm{n}, ymm{n}" for n in range(target.vector_registers)]
    head = [".intel_syntax noprefix", ".text", f".globl {ENTRY}", f"{ENTRY}:"]
    kernel = [".data", ".p2align 3", f".globl {KERNEL}", f"{KERNEL}: .quad 0", '.section .note.GNU-stack,"",@progbits']
    return "\n".join([*head, *fill, f"mov rax, [rip+{KERNEL}@GOTPCREL]", "jmp [rax]", *kernel, ""])


class DirtyCalls:
    """Makes kernels of libraries callable with dirty registers.

    Args:
        library: what ``text`` was assembled to; it may be deleted afterwards.
    """

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._kernel = ctypes.c_void_p.in_dll(self._library, KERNEL)
        entry = ctypes.cast(getattr(self._library, ENTRY), ctypes.c_void_p).value
        self._call = tvm_ffi.Function.__from_extern_c__(entry, keep_alive_object=self._library)

    def of(self, library: str, symbol: str) -> Callable[..., Any]:
        """Return the kernel ``symbol`` of a library that TVM has loaded; it is valid as long as TVM keeps the library.

        Raises:
            OSError: if TVM has not loaded the library, or there is no such kernel.
        """
        handle = _ctypes.dlopen(library, os.RTLD_NOW | os.RTLD_NOLOAD)
        try:
            address = _ctypes.dlsym(handle, f"__tvm_ffi_{symbol}")
        finally:
            _ctypes.dlclose(handle)  # TVM alone says how long a library stays

        def call(*arguments: Any) -> Any:
            self._kernel.value = address
            return self._call(*arguments)

        return call
