"""Runs a scheduled GPU function on the CPU, from the very CUDA source that NVRTC gets.

TVM lowers the schedule; its device code becomes CUDA source, which g++ compiles against ``emulator.h``; its host code
says in which order kernels are launched, with which arguments, and on how many blocks and threads. What this cannot
show: what hardware does with it (timing, alignment faults, limits of a launch; those are checked from the cubin).
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import s_tir

from autotune.backends.cuda.source import Launch, cuda_program, kernels_of
from schedules.target import Target

HEADER = Path(__file__).with_name("emulator.h")
FOLDER = Path(tempfile.gettempdir()) / "cuda-emulated"
SIGNATURE = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\) \{')
DYNAMIC = re.compile(r"extern (?:__shared__|alignas\(\d+\) static) (?:__align__\(\d+\) )?([\w ]+?) (\w+)\[\];")
DYNAMIC_BYTES = 232448
GUARD = 4096
"""Bytes before and behind every buffer, which nothing may write to."""
ASYNC_COPY = re.compile(r"\bptx_cp_async_legacy_(pred_)?(?:cg|ca)_(\d+)_(\d+)_(\d+)\b")
"""A copy to shared memory: predicated or not, of how many bytes, sizes of the elements that its offsets count."""
ASSEMBLY = re.compile(r'asm(?: volatile)?\("([\w.]+) ?([^";]*);"\s*(?::([^:;]*)(?::([^:;]*)(?::[^;]*)?)?)?\);')
OPERAND = re.compile(r'"[^"]*"\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)')
ASYNC_COMMIT = re.compile(r"\btvm_builtin_ptx_cp_async_commit_group\w*\(\)")
ASYNC_WAIT = re.compile(r"\btvm_builtin_ptx_cp_async_wait_group\w*_(\d+)\(\)")


@dataclass(frozen=True)
class Lowered:
    """A function as CUDA source and launches.

    Attributes:
        sizes: name of a global buffer → (elements, bytes of one).
        parameters: names of the function's parameters, in order.
    """

    source: str
    launches: tuple[Launch, ...]
    sizes: dict[str, tuple[int, int]]
    parameters: tuple[str, ...]


def lower_cuda(sch: s_tir.Schedule, target: Target) -> Lowered:
    """What TVM makes of a schedule, and the memory that running it takes."""
    program = cuda_program(sch, target)
    func = program.func
    buffers = [*func.params, *func.body.block.alloc_buffers]
    sizes = {b.name: (math.prod(int(x) for x in b.ty.shape), _width(str(b.ty.dtype))) for b in buffers}
    return Lowered(program.source, program.launches, sizes, tuple(param.name for param in func.params))


def _width(dtype: str) -> int:
    return {"bool": 1, "bfloat16": 2}.get(dtype) or np.dtype(dtype).itemsize


def compile_emulated(source: str) -> ctypes.CDLL:
    """The source's kernels, each as ``run_NAME(void** arguments, const unsigned* extents)``."""
    code = ASSEMBLY.sub(_instruction, kernels_of(source))
    entries = []
    for name, params in SIGNATURE.findall(code):
        types = [
            re.sub(r"\b\w+$", "", re.sub(r"__restrict__|__grid_constant__", "", param)).strip()
            for param in params.split(",")
        ]
        arguments = ", ".join(f"({kind})(intptr_t)arguments[{index}]" for index, kind in enumerate(types))
        entries.append(ENTRY.format(name=name, arguments=arguments))
    code = re.sub(r"__shared__ alignas\((\d+)\)", r"alignas(\1) static", code)
    code = DYNAMIC.sub(rf"alignas(128) static \1 \2[{DYNAMIC_BYTES} / sizeof(\1)];", code)
    code = ASYNC_WAIT.sub(r"emulator::wait_group(\1)", ASYNC_COMMIT.sub("emulator::commit_group()", code))
    text = f"{_copies(code)}\n{code}\n" + "\n".join(entries)
    header = _header()
    stem = FOLDER / hashlib.sha256((text + header.parent.name).encode()).hexdigest()[:16]
    library = stem.with_suffix(".so")
    if not library.exists():
        stem.with_suffix(".cc").write_text(f'#include "{header}"\n{text}')
        _compile(stem.with_suffix(".cc"), library)
    return ctypes.CDLL(str(library))


def _instruction(match: re.Match[str]) -> str:
    """Inline assembly as a call of the emulator's function of that name, operands in the order of the instruction."""
    name, text, outputs, inputs = match.groups()
    operands_given = OPERAND.findall(f"{outputs or ''},{inputs or ''}")
    operands = [part.strip(" {}[]") for part in text.split(",") if part.strip()]
    named = [operands_given[int(part[1:])] if part.startswith("%") else part for part in operands]
    return f"ptx::{name.replace('.', '_')}({', '.join(named)});"


@cache
def _header() -> Path:
    """``HEADER``, compiled: reading it takes longer than reading a kernel."""
    header = FOLDER / hashlib.sha256(HEADER.read_bytes()).hexdigest()[:16] / HEADER.name
    if not header.with_suffix(".h.gch").exists():
        header.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HEADER, header)
        _compile(header, header.with_suffix(".h.gch"), "-x", "c++-header")
    return header


def _compile(source: Path, to: Path, *more: str) -> None:
    """Compile to a file that appears at once and whole: other processes may be waiting for it."""
    begun = to.with_suffix(f".{os.getpid()}")
    command = ["g++", "-O1", "-w", "-std=c++17", "-shared", "-fPIC", "-fno-strict-aliasing"]
    done = subprocess.run([*command, *more, str(source), "-o", str(begun)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    begun.replace(to)


ENTRY = """
extern "C" void run_{name}(void **arguments, const unsigned *extents) {{
  gridDim = {{extents[0], extents[1], extents[2]}};
  blockDim = {{extents[3], extents[4], extents[5]}};
  emulator::body = [&] {{ {name}({arguments}); }};
  unsigned total = gridDim.x * gridDim.y * gridDim.z;
  for (unsigned b = 0; b < total; ++b) {{
    blockIdx = {{b % gridDim.x, b / gridDim.x % gridDim.y, b / gridDim.x / gridDim.y}};
    emulator::run_block(b & 1);
  }}
}}
"""


def _copies(code: str) -> str:
    """The asynchronous copies that ``code`` calls."""
    copies = []
    for match in sorted({match.group(): match for match in ASYNC_COPY.finditer(code)}.values(), key=str):
        predicated, size, to, source = match.groups()
        condition = ", int wanted" if predicated else ""
        copies.append(
            f"static inline void {match.group()}(void *to, int to_at, const void *from, int from_at{condition}) {{\n"
            f"  emulator::copy_async((char *)to + to_at * {to}, (const char *)from + from_at * {source}, {size}, "
            f"{'wanted' if predicated else 'true'});\n}}\n"
        )
    return "".join(copies)


class Emulated:
    """A scheduled function, callable on arrays."""

    def __init__(self, sch: s_tir.Schedule, target: Target) -> None:
        self._lowered = lower_cuda(sch, target)
        self._library = compile_emulated(self._lowered.source)

    def __call__(self, arrays: Sequence[NDArray[Any]], output: NDArray[Any]) -> NDArray[Any]:
        """``output`` after running; what the caller left in it shows where nothing is written.

        Raises:
            AssertionError: if a kernel wrote outside a buffer.
        """
        lowered = self._lowered
        memory = {
            name: np.full(count * width + 2 * GUARD, 0xFF, np.uint8) for name, (count, width) in lowered.sizes.items()
        }
        for name, array in zip(lowered.parameters, (*arrays, output), strict=True):
            memory[name][GUARD:-GUARD] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for launch in lowered.launches:
            addresses = (
                memory[argument].ctypes.data + GUARD if isinstance(argument, str) else argument
                for argument in launch.arguments
            )
            pointers = (ctypes.c_void_p * len(launch.arguments))(*addresses)
            extents = (ctypes.c_uint * 6)(*launch.blocks, *launch.threads)
            getattr(self._library, f"run_{launch.kernel}")(pointers, extents)
        for name, kept in memory.items():
            assert (np.concatenate([kept[:GUARD], kept[-GUARD:]]) == 0xFF).all(), f"writes outside {name}"
        return memory[lowered.parameters[-1]][GUARD:-GUARD].view(output.dtype).reshape(output.shape)

    def conflicts(self) -> dict[str, tuple[int, int]]:
        """Kind of access to shared memory → how many warps made, and the most ways in which one met in a bank."""
        kinds = ("copy", "ldmatrix", "word")
        counts, ways = ((ctypes.c_ulonglong * len(kinds))() for _ in range(2))
        self._library.bank_conflicts(counts, ways)
        return {kind: (counts[at], ways[at]) for at, kind in enumerate(kinds)}


def emulate(sch: s_tir.Schedule, target: Target, arrays: Sequence[NDArray[Any]], output: NDArray[Any]) -> NDArray[Any]:
    """``output`` (poisoned by the caller) after running the function on ``arrays``."""
    return Emulated(sch, target)(arrays, output)
