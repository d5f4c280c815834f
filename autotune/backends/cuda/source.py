"""A scheduled function as CUDA source and launches, without compiling it."""

from __future__ import annotations

import importlib
import itertools
import re
from dataclasses import dataclass
from operator import attrgetter

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call

from autotune.backends.cuda.nvrtc import CALLBACK
from schedules.lower import tvm_target
from schedules.target import Target
from schedules.templates.common.indices import exact_indices
from schedules.templates.cuda.cuda_structure import PASSES
from schedules.templates.instructions.kept_differences import differences_kept
from schedules.templates.instructions.kept_nan import nan_kept
from schedules.vocabulary.errors import check

AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
KERNELS = re.compile(r'(template <class T> )?static __forceinline__ __device__|extern "C" __global__')
"""Start of the kernels, behind TVM's includes, with the device functions that templates bring along."""

_BUILD = importlib.import_module("tvm.tirx.build")  # ``tvm.tirx.build`` itself names a function


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
        arguments: the kernel's names of its buffers, and the values of its numbers.
    """

    kernel: str
    arguments: tuple[str | int, ...]
    blocks: tuple[int, int, int]
    threads: tuple[int, int, int]


@dataclass(frozen=True)
class CudaProgram:
    """The code that TVM makes of a schedule, before NVRTC.

    Attributes:
        func: what was lowered.
        source: of the device.
        launches: of the host, in order.
    """

    func: tirx.PrimFunc
    source: str
    launches: tuple[Launch, ...]


def cuda_source(sch: s_tir.Schedule, target: Target) -> str:
    """The CUDA source of a schedule, its launches as comments before it."""
    program = cuda_program(sch, target)
    alike = itertools.groupby(program.launches, attrgetter("kernel", "blocks", "threads"))
    counted = [(first, 1 + len(list(others))) for first, others in ((next(run), run) for _, run in alike)]
    launches = "".join(f"// {first}{f', {count} in a row' * (count > 1)}\n" for first, count in counted)
    return f"{launches}{kernels_of(program.source).rstrip()}\n"


def kernels_of(source: str) -> str:
    """Return ``source`` without what TVM includes."""
    begin = KERNELS.search(source)
    check(begin is not None, "the source has no kernel")
    return source[begin.start() :] if begin else ""


def cuda_program(sch: s_tir.Schedule, target: Target) -> CudaProgram:
    """TVM's own steps of a build, stopped before the compiler."""
    native, func = tvm_target(target), exact_indices(nan_kept(differences_kept(sch.mod["main"]), spelt=True))
    with native, tvm.transform.PassContext(config=dict(PASSES)):
        pipeline, _, device_passes = tvm.tirx.get_default_tir_pipeline(native)
        module = tvm.IRModule({"main": func})
        module = tirx.transform.BindTarget(native.with_host(tvm.target.Target("llvm")))(module)
        host, devices = _BUILD.split_host_device_mods(pipeline(module))
        check(len(devices) == 1, "the function has no kernel")
        (device,) = devices.values()
        source = _generated(device_passes()(device), native)
    return CudaProgram(func, source, _launches(host, device))


def _generated(device: tvm.IRModule, native: tvm.target.Target) -> str:
    """TVM hands the source to a callback before it makes a module of the answer."""
    kept: list[str] = []

    def keep(source: str) -> bytes:
        kept.append(source)
        return b"none"

    before = tvm_ffi.get_global_func(CALLBACK, allow_missing=True)
    tvm_ffi.register_global_func(CALLBACK, keep, override=True)
    try:
        module = _BUILD.codegen_build(device, native)
    finally:
        if before is not None:
            tvm_ffi.register_global_func(CALLBACK, before, override=True)
    # Where no driver can be loaded, TVM does not ask for machine code and keeps the source itself.
    return kept[0] if kept else str(module.inspect_source())


def _launches(host: tvm.IRModule, device: tvm.IRModule) -> tuple[Launch, ...]:
    """Return the launches of the host code, in order: calls of a kernel's name, its arguments and extents."""
    calls: list[Call] = []
    for func in _flat(host).functions.values():
        tvm_ffi.structural_walk(func.body, (Call, calls.append))  # append returns None, which means: go on
    kernels = {str(func.attrs["global_symbol"]): func for func in device.functions.values()}
    launches = []
    for call in calls:
        name = str(getattr(call.args[0], "value", "")) if len(call.args) else ""
        if name not in kernels:
            continue
        tags = [str(tag) for tag in kernels[name].attrs["tirx.kernel_launch_params"] if str(tag) in AXES]
        params, values = kernels[name].params, list(call.args)[1:]
        arguments = tuple(
            int(value) if isinstance(value, tirx.IntImm) else param.name.removesuffix("_ptr")
            for param, value in zip(params, values, strict=False)
        )
        numbers = [int(value) for value in values[len(params) :]]
        extents = dict(zip(tags, numbers, strict=False))  # dynamic shared memory may come behind
        shape = [extents.get(axis, 1) for axis in AXES]
        launches.append(Launch(name, arguments, (shape[0], shape[1], shape[2]), (shape[3], shape[4], shape[5])))
    check(launches, "no kernel is launched")
    return tuple(launches)


def _flat(host: tvm.IRModule) -> tvm.IRModule:
    """The host code with its loops of launches unrolled."""

    def unrolled(loop: tirx.For) -> tirx.For:
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.UNROLLED, loop.body)

    functions = {name: tvm_ffi.structural_map(func, (tirx.For, unrolled)) for name, func in host.functions.items()}
    return tvm.transform.Sequential([tirx.transform.UnrollLoop(), tirx.transform.StmtSimplify()])(
        tvm.IRModule(functions)
    )
