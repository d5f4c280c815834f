"""CUDA source → cubin with NVRTC, for the architecture of our own target.

TVM's callback asks ``Target.current()`` for the architecture, which a build in a fresh thread or process does not have,
and throws away what ptxas says. Ours is told both, once, by whoever compiles.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from autotune.backends.cuda.cubin import Kernel, inspect
from autotune.measure.code_cache import Code, CodeCache, key_of, user_cache
from schedules.lower import tvm_target
from schedules.target import Target
from schedules.templates.common.indices import exact_indices
from schedules.templates.cuda.cuda_structure import PASSES
from schedules.templates.instructions.kept_differences import differences_kept
from schedules.templates.instructions.kept_nan import nan_kept
from schedules.vocabulary.errors import InstallError, ScheduleError

CALLBACK = "tvm_callback_cuda_compile"
ADVICE = "install them with: pip install 'tune-compiler[cuda]'"

HEADERS = ("cuda_fp16.h", "mma.h", "crt/mma.h")
NV_TARGET = "nv/target"
"""Headers that generated code includes, and theirs; a folder that has only some of them is passed over."""

PREAMBLE = """\
typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned int uint32_t; typedef long long int64_t; typedef unsigned long long uint64_t;
#define __asm__ asm
#define __volatile__ volatile
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
"""
"""Definitions that generated code expects of a host compiler; NVRTC has none, and CUDA's own take 0.3 s to read."""

PROLOGUE = ("#ifdef __CUDACC_RTC__", "#include <cuda.h>\n#endif\n")
"""Beginning and end of the includes that ``PREAMBLE`` stands in for."""

logger = logging.getLogger(__name__)


@dataclass
class Compiled:
    """The results of compiling while ``nvrtc_for`` was in charge.

    Attributes:
        cubins: machine code of every device module, in order.
        kernels: what ptxas made of each kernel, by name.
    """

    cubins: list[bytes] = field(default_factory=list)
    kernels: dict[str, Kernel] = field(default_factory=dict)


def compile_kernels(functions: Mapping[str, tirx.PrimFunc], target: Target) -> tuple[tvm.runtime.Executable, Compiled]:
    """Scheduled functions as a module that holds their machine code, and what that is; several threads may call it.

    Args:
        functions: name in the module → function.
    """
    kept = {name: exact_indices(nan_kept(differences_kept(func), spelt=True)) for name, func in functions.items()}
    named = {name: func.with_attr("global_symbol", name) for name, func in kept.items()}
    with nvrtc_for(target.arch) as compiled, tvm.transform.PassContext(config=dict(PASSES)):
        return tvm.compile(tvm.IRModule(named), target=tvm_target(target)), compiled


def check_nvrtc() -> None:
    """Refuse to start where no CUDA source can be compiled.

    Raises:
        InstallError: naming what is missing.
    """
    for module in ("cuda.bindings.nvrtc",):
        if not _installed(module):
            raise InstallError(f"CUDA kernels are compiled with NVRTC, and {module} is not installed; {ADVICE}")
    include_folder()


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def include_folder() -> Path:
    """The folder with CUDA's headers: of the pip packages, or of an installed toolkit.

    Raises:
        InstallError: if there is none.
    """
    spec = importlib.util.find_spec("nvidia") if _installed("nvidia") else None
    roots = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    candidates = [
        folder / "include"
        for root in roots
        for folder in (*sorted(root.glob("cu*"), reverse=True), root / "cuda_runtime")
    ]
    candidates += [Path("/usr/local/cuda/include"), Path("/opt/cuda/include")]
    for folder in candidates:
        if all((folder / name).is_file() for name in HEADERS) and _has_target(folder):
            return folder
    raise InstallError(f"the CUDA headers ({', '.join(HEADERS)}, {NV_TARGET}) were not found; {ADVICE}")


def _has_target(folder: Path) -> bool:
    """Return whether ``NV_TARGET`` is there, which packages of their own and toolkits keep in different places."""
    return any((place / NV_TARGET).is_file() for place in (folder, folder / "cccl"))


class _InCharge(threading.local):
    """The architecture that a thread compiles for."""

    arch = ""
    compiled: Compiled | None = None


_in_charge = _InCharge()


@cache
def _register() -> None:
    """Put our callback in TVM's place, once: it leaves to TVM's own what no thread is in charge of."""
    before = tvm_ffi.get_global_func(CALLBACK, allow_missing=True)

    def compile_source(source: str) -> bytes:
        compiled = _in_charge.compiled
        if compiled is None:
            if before is None:
                raise InstallError(f"TVM has no compiler for CUDA sources; {ADVICE}")
            return bytes(before(source))
        cubin = compile_cuda(source, _in_charge.arch)
        compiled.cubins.append(cubin)
        compiled.kernels.update(inspect(cubin))
        return cubin

    tvm_ffi.register_global_func(CALLBACK, compile_source, override=True)


@contextmanager
def nvrtc_for(arch: str) -> Iterator[Compiled]:
    """Inside, TVM compiles this thread's CUDA source for ``arch`` through NVRTC; what it compiled is kept.

    Args:
        arch: such as ``sm_90``.
    """
    _register()
    before = _in_charge.arch, _in_charge.compiled
    compiled = Compiled()
    _in_charge.arch, _in_charge.compiled = arch, compiled
    try:
        yield compiled
    finally:
        _in_charge.arch, _in_charge.compiled = before


def compile_cuda(source: str, arch: str) -> bytes:
    """The cubin of ``source``.

    Raises:
        ScheduleError: with the compiler's first error; generated code that does not compile is a failed candidate.
        InstallError: if NVRTC is not there.
    """
    return _compile(source, arch, "CUBIN")


def compile_ptx(source: str, arch: str) -> str:
    """The PTX of ``source``.

    Raises:
        ScheduleError: with the compiler's first error.
        InstallError: if NVRTC is not there.
    """
    return _compile(source, arch, "PTX").rstrip(b"\0").decode()


def _compile(source: str, arch: str, form: str) -> bytes:
    """``source`` as NVRTC's ``form``: CUBIN or PTX, from the user's code cache where the same was compiled before."""
    check_nvrtc()
    text = PREAMBLE + _without_prologue(source)
    options = [
        f"--gpu-architecture={arch}",
        f"--include-path={include_folder()}",
        f"--include-path={include_folder() / 'cccl'}",
        "-default-device",
        "--std=c++17",
    ]
    cache = CodeCache(user_cache())
    key = key_of([form, text, *options, *_identity(include_folder())])
    known = cache.get(key)
    if known is None:
        known = Code(_compiled(text, options, form))
        cache.put(key, known)
    return known.objects


@cache
def _identity(headers: Path) -> tuple[str, ...]:
    """Return texts that change when another version of NVRTC or of CUDA's headers is installed."""
    from cuda.bindings import nvrtc  # optional: an extra

    files = [(headers / name).stat() for name in HEADERS]
    packages = sorted(
        f"{item.name} {item.version}"
        for item in importlib.metadata.distributions()
        if item.name.startswith(("nvidia-cuda-", "cuda-"))
    )
    return (*packages, *map(str, nvrtc.nvrtcVersion()), *(f"{file.st_size} {file.st_mtime_ns}" for file in files))


def _compiled(text: str, options: Sequence[str], form: str) -> bytes:
    from cuda.bindings import nvrtc

    encoded = [option.encode() for option in options]
    program = _called(nvrtc, nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, None, None))
    (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        size = _called(nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
        log = b" " * size
        _called(nvrtc, nvrtc.nvrtcGetProgramLog(program, log))
        raise ScheduleError(f"CUDA source does not compile: {_first_error(log.decode(errors='replace'))}")
    size = _called(nvrtc, getattr(nvrtc, f"nvrtcGet{form}Size")(program))
    code: bytes = b" " * size
    _called(nvrtc, getattr(nvrtc, f"nvrtcGet{form}")(program, code))
    nvrtc.nvrtcDestroyProgram(program)
    return code


def _without_prologue(source: str) -> str:
    begin, end = source.find(PROLOGUE[0]), source.find(PROLOGUE[1])
    return source if min(begin, end) < 0 else source[:begin] + source[end + len(PROLOGUE[1]) :]


def _called(nvrtc: Any, answer: tuple[Any, ...]) -> Any:
    """The value of a call of NVRTC; an error is not the candidate's fault."""
    status, *values = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise InstallError(f"NVRTC failed ({status}); {ADVICE}")
    return values[0] if values else None


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip("\0 ")]
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")
