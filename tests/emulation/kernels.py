"""Kernels for another processor, built here and run by QEMU: all of a batch in one program."""

from __future__ import annotations

import math
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tvm import tirx

from autotune.backends.cpu.linking import CORE, CORE_OPTIONS
from autotune.host.compilers import compile_with, cross_prefix
from schedules.lower import tvm_target
from schedules.target import Target
from schedules.templates.cpu.passes import compiled
from tests.schedules_tests.programs import Array, dtypes, shapes

RUNNER = Path(__file__).with_name("runner.cc")
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
"""NumPy's kinds → DLPack's codes of types; bfloat16, which NumPy does not know, is 4."""
LONGEST_S = 300


def missing(architecture: str) -> str:
    """The programs that emulation lacks here, for a test's reason to skip; empty where all are there."""
    tools = (f"{cross_prefix(architecture)}g++", f"{cross_prefix(architecture)}objcopy", f"qemu-{architecture}")
    return ", ".join(tool for tool in tools if shutil.which(tool) is None)


def needs(architecture: str) -> pytest.MarkDecorator:
    """Skips a test where an architecture cannot be emulated."""
    return pytest.mark.skipif(bool(missing(architecture)), reason=f"not installed: {missing(architecture)}")


def emulated_command(target: Target, *arguments: str) -> list[str]:
    """The command that runs a program on a processor that has what ``target`` needs, and no longer vectors."""
    vectors = f"v=true,vlen={max(128, 8 * target.vector_bytes)},elen=64"
    processor = {"riscv64": f"rv64,{vectors}"}.get(target.architecture, "max")
    return [f"qemu-{target.architecture}", "-cpu", processor, "-L", f"/usr/{target.architecture}-linux-gnu", *arguments]


@dataclass(frozen=True)
class Kernel:
    """A scheduled function and what it is given.

    Attributes:
        arrays: all of its parameters but the last, which is the output.
    """

    func: tirx.PrimFunc
    arrays: Sequence[Array]


def run_emulated(kernels: Sequence[Kernel], target: Target) -> list[Array]:
    """The output of every kernel.

    Raises:
        ValueError: if a kernel fails.
        RuntimeError and its like, of TVM or LLVM, for what they cannot compile.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        objects = []
        for number, kernel in enumerate(kernels):
            objects.append(str(folder / f"{number}.o"))
            compiled(kernel.func, f"kernel{number}", tvm_target(target)).mod.write_to_file(objects[-1])
        (folder / "table.cc").write_text(_table(len(kernels)))
        (folder / "inputs").write_bytes(b"".join(_given(kernel) for kernel in kernels))
        program = folder / "program"
        sources = [str(CORE), str(RUNNER), str(folder / "table.cc")]
        compile_with([*CORE_OPTIONS, "-o", str(program), *sources, *objects, "-lm"], target.architecture)
        paths = [str(folder / "inputs"), str(folder / "outputs")]
        command = emulated_command(target, str(program), *paths)
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
        if done.returncode:
            raise ValueError(f"the emulated kernels ended with {done.returncode}: {done.stderr[-500:]}")
        return _outputs((folder / "outputs").read_bytes(), kernels)


def _table(count: int) -> str:
    names = [f"__tvm_ffi_kernel{number}" for number in range(count)]
    kind = "int (void*, const struct Any*, int32_t, struct Any*)"
    declared = "".join(f"int {name}(void*, const struct Any*, int32_t, struct Any*);\n" for name in names)
    return (
        f"#include <stdint.h>\n"
        f'extern "C" {{\n{declared}}}\n'
        f"typedef {kind.replace('(void', '(*Kernel)(void', 1)};\n"
        f"extern const Kernel tune_kernels[] = {{{', '.join(names)}}};\nextern const int tune_kernel_count = {count};\n"
    )


def _given(kernel: Kernel) -> bytes:
    shape, dtype = shapes(kernel.func)[-1], dtypes(kernel.func)[-1]
    unwritten = b"\xfe" * (math.prod(shape) * dtype.itemsize)  # shows
    output = np.frombuffer(unwritten, dtype).reshape(shape)
    arrays = [np.ascontiguousarray(array) for array in (*kernel.arrays, output)]
    parts = [np.int32(len(arrays)).tobytes()]
    for array in arrays:
        code = 4 if str(array.dtype) == "bfloat16" else CODES[array.dtype.kind]
        parts.append(np.array([code, 8 * array.dtype.itemsize, array.ndim], np.int32).tobytes())
        parts += [np.array(array.shape, np.int64).tobytes(), array.tobytes()]
    return b"".join(parts)


def _outputs(data: bytes, kernels: Sequence[Kernel]) -> list[Array]:
    arrays, at = [], 0
    for number, kernel in enumerate(kernels):
        returned = int(np.frombuffer(data, np.int32, 1, at)[0])
        if returned:
            raise ValueError(f"kernel {number} returned {returned}")
        shape, dtype = shapes(kernel.func)[-1], dtypes(kernel.func)[-1]
        size = int(np.prod(shape)) * dtype.itemsize
        arrays.append(np.frombuffer(data[at + 4 : at + 4 + size], dtype).reshape(shape))
        at += 4 + size
    return arrays
