"""Runs a scheduled GPU function on the CPU, from the very CUDA source that NVRTC gets.

TVM lowers the schedule; its device code becomes CUDA source, which g++ compiles against ``emulator.h``; its host code
says in which order kernels are launched, with which arguments, and on how many blocks and threads. What this cannot
show: what hardware does with it (timing, alignment faults, limits of a launch; those are checked from the cubin).
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import math
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import s_tir, tirx
from tvm.ir import Call

from autotune.cuda.nvrtc import CALLBACK
from schedules.lower import tvm_target
from schedules.target import Target

BUILD = importlib.import_module("tvm.tirx.build")  # ``tvm.tirx.build`` itself names the function
HEADER = Path(__file__).with_name("emulator.h")
SIGNATURE = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^)]*)\) \{')
AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
DYNAMIC = re.compile(r"extern (?:__shared__|alignas\(\d+\) static) (?:__align__\(\d+\) )?[\w ]+? (\w+)\[\];")
DYNAMIC_BYTES = 232448


@dataclass(frozen=True)
class Launch:
    """One kernel launch: names of its buffers, blocks and threads."""

    kernel: str
    arguments: tuple[str, ...]
    blocks: tuple[int, int, int]
    threads: tuple[int, int, int]


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
    """What TVM makes of a schedule, before NVRTC."""
    func = sch.mod["main"]
    native = tvm_target(target)
    with native, tvm.transform.PassContext(opt_level=3):
        pipeline, host_passes, device_passes = tvm.tirx.get_default_tir_pipeline(native)
        module = tvm.IRModule({"main": func})
        module = tirx.transform.BindTarget(native.with_host(tvm.target.Target("llvm")))(module)
        module = pipeline(module)
        host, devices = BUILD.split_host_device_mods(module)
        (device,) = devices.values()
        source = _source(device_passes()(device), native)
    launches = _launches(host, device)
    parameters = tuple(param.name for param in func.params)
    buffers = [*func.params, *_allocated(func)]
    sizes = {b.name: (math.prod(int(x) for x in b.ty.shape), _width(str(b.ty.dtype))) for b in buffers}
    return Lowered(source, launches, sizes, parameters)


def _width(dtype: str) -> int:
    return {"bool": 1, "bfloat16": 2}.get(dtype) or np.dtype(dtype).itemsize


def _source(device: tvm.IRModule, native: tvm.target.Target) -> str:
    kept: list[str] = []

    def keep(code: str) -> bytes:
        kept.append(code)
        return b"none"

    before = tvm.get_global_func(CALLBACK, allow_missing=True)
    tvm.register_global_func(CALLBACK, keep, override=True)
    try:
        BUILD.codegen_build(device, native)
    finally:
        if before is not None:
            tvm.register_global_func(CALLBACK, before, override=True)
    return kept[0]


def _allocated(func: tirx.PrimFunc) -> list[Any]:
    return list(func.body.block.alloc_buffers)


def _launches(host: tvm.IRModule, device: tvm.IRModule) -> tuple[Launch, ...]:
    """Every launch in the host code, in order: (name, buffers…, extents…) with the kernel's own names of its buffers."""
    calls: list[Call] = []
    for func in host.functions.values():
        tvm_ffi.structural_walk(func.body, (Call, calls.append))  # append returns None, which means: go on
    kernels = {str(func.attrs["global_symbol"]): func for func in device.functions.values()}
    found = []
    for call in calls:
        name = str(getattr(call.args[0], "value", "")) if len(call.args) else ""
        if name not in kernels:
            continue
        tags = [str(tag) for tag in kernels[name].attrs["tirx.kernel_launch_params"] if str(tag) in AXES]
        buffers = tuple(param.name.removesuffix("_ptr") for param in kernels[name].params)
        numbers = [int(value) for value in list(call.args)[1 + len(buffers) :]]
        extents = dict(zip(tags, numbers, strict=False))
        shape = [extents.get(axis, 1) for axis in AXES]
        found.append(Launch(name, buffers, (shape[0], shape[1], shape[2]), (shape[3], shape[4], shape[5])))
    assert found, "no kernel is launched"
    return tuple(found)


def compile_emulated(source: str) -> ctypes.CDLL:
    """The source's kernels, each as ``run_NAME(void** arguments, const unsigned* extents)``."""
    code = source[source.index('extern "C" __global__') :]
    helpers = source[: source.index('extern "C" __global__')]
    entries = []
    for name, params in SIGNATURE.findall(code):
        types = [
            re.sub(r"\b\w+$", "", re.sub(r"__restrict__|__grid_constant__", "", param)).strip()
            for param in params.split(",")
        ]
        given = ", ".join(f"({kind})arguments[{index}]" for index, kind in enumerate(types))
        entries.append(ENTRY.format(name=name, arguments=given))
    code = re.sub(r"__shared__ alignas\((\d+)\)", r"alignas(\1) static", code)
    code = DYNAMIC.sub(rf"alignas(128) static unsigned char \1[{DYNAMIC_BYTES}];", code)
    text = f'#include "{HEADER}"\n{_kept_helpers(helpers)}\n{code}\n' + "\n".join(entries)
    folder = Path(tempfile.gettempdir()) / "cuda-emulated"
    folder.mkdir(exist_ok=True)
    stem = folder / hashlib.sha256((text + HEADER.read_text()).encode()).hexdigest()[:16]
    library = stem.with_suffix(".so")
    if not library.exists():
        stem.with_suffix(".cc").write_text(text)
        command = [
            "g++",
            "-O1",
            "-w",
            "-std=c++17",
            "-shared",
            "-fPIC",
            "-fno-strict-aliasing",
            "-o",
            str(library),
            str(stem) + ".cc",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:3000]
    return ctypes.CDLL(str(library))


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


def _kept_helpers(_: str) -> str:
    """Includes and typedefs before the first kernel: the header has them all."""
    return ""


class Emulated:
    """A scheduled function, callable on arrays."""

    def __init__(self, sch: s_tir.Schedule, target: Target) -> None:
        self._lowered = lower_cuda(sch, target)
        self._library = compile_emulated(self._lowered.source)

    def __call__(self, arrays: Sequence[NDArray[Any]], output: NDArray[Any]) -> NDArray[Any]:
        """``output`` after running; what the caller left in it shows where nothing is written."""
        lowered = self._lowered
        memory = {name: np.full(count * width, 0xFF, np.uint8) for name, (count, width) in lowered.sizes.items()}
        for name, array in zip(lowered.parameters, (*arrays, output), strict=True):
            memory[name] = np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy()
        for launch in lowered.launches:
            pointers = (ctypes.c_void_p * len(launch.arguments))(*(memory[n].ctypes.data for n in launch.arguments))
            extents = (ctypes.c_uint * 6)(*launch.blocks, *launch.threads)
            getattr(self._library, f"run_{launch.kernel}")(pointers, extents)
        return memory[lowered.parameters[-1]].view(output.dtype).reshape(output.shape)


def emulate(sch: s_tir.Schedule, target: Target, arrays: Sequence[NDArray[Any]], output: NDArray[Any]) -> NDArray[Any]:
    """``output`` (poisoned by the caller) after running the function on ``arrays``."""
    return Emulated(sch, target)(arrays, output)
