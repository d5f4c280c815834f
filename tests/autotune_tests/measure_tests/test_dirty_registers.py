"""The check calls kernels with every vector register dirty, so one that forgets to clear a sum shows each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm

from autotune.host.machine import host_target
from autotune.measure.dirty_registers import DirtyCalls, dirty_calls
from autotune.measure.kernel_builder import Builder
from autotune.measure.kernel_timing import load
from autotune.measure.measurer import symbol_of
from autotune.measure.output_check import aligned
from schedules import lower
from schedules.task import Task
from schedules.templates.assembly.assembly_text import TENSOR

TARGET = host_target(1)
TASK = Task("forgetful", "store", "fake", "store", ((8,),), ("float32",), (), 8, 32)


def kernel(register: int, clears: bool) -> str:
    """A kernel that stores a vector register, which it clears before or not."""
    name = f"__tvm_ffi_{symbol_of(TASK.key)}"
    clear = [f"vpxor xmm{register}, xmm{register}, xmm{register}"] if clears else []
    object_ = ["mov rax, [rsi+8]", "lea rcx, [rax+24]", f"cmp dword ptr [rsi], {TENSOR}", "cmove rax, rcx"]
    store = ["mov rax, [rax]", f"vmovups [rax], ymm{register}", "vzeroupper", "xor eax, eax", "ret"]
    lines = [".intel_syntax noprefix", ".text", f".globl {name}", f"{name}:", *object_, *clear, *store]
    return "\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""])


@pytest.fixture(scope="module")
def dirty() -> DirtyCalls:
    calls = dirty_calls(Builder(TARGET, lower), TARGET)
    if calls is None:
        pytest.skip("this machine has no kernels in assembly")
    return calls


@pytest.mark.parametrize("register", [0, 7, 15])
def test_a_register_that_was_not_cleared_shows(dirty: DirtyCalls, tmp_path: Path, register: int) -> None:
    got = {}
    for clears in (True, False):
        library = str(tmp_path / f"{clears}.so")
        Builder(TARGET, lower).assemble(kernel(register, clears), library)
        loaded = load(library, TASK)
        output = aligned((8,), np.dtype(np.float32))
        dirty.of(library, symbol_of(TASK.key))(tvm.runtime.from_dlpack(output))
        got[clears] = output
        del loaded
    assert not got[True].any()
    assert np.isnan(got[False]).all()
