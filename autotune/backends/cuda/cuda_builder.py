"""Kernels → machine code, in a worker process that can be killed.

The worker takes the first config of each kernel that compiles without local memory (registers that spilled, or arrays
that could not be kept in registers); a thread per core works on one kernel at a time. It writes one library of all
chosen kernels with their cubins inside, as TVM loads it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import tirx

from autotune.backends.cuda.cubin import Kernel
from autotune.backends.cuda.nvrtc import check_nvrtc, compile_kernels
from autotune.backends.cuda.stub import has_driver, make_stub
from autotune.host.fork_server import Handler, Job, Refused, Start
from autotune.host.machine import read_host
from autotune.host.worker_pool import ForkServerProcess, Lost
from schedules.config import Config
from schedules.lower import load_program, lower
from schedules.target import Target
from schedules.vocabulary.errors import MeasureError, ScheduleError, named_last_line

HANDLER = "autotune.backends.cuda.cuda_builder:CudaBuildHandler"

SECONDS_PER_CONFIG = 30.0
"""A kernel compiles in 0.3 to 2 s. Some legal configs take much longer, and none is worth this."""


@dataclass(frozen=True)
class Wanted:
    """One kernel to build.

    Attributes:
        symbol: its function's name in the library.
        program: normalised PrimFunc as JSON text.
        configs: what to try, best first.
    """

    symbol: str
    program: str
    configs: tuple[Config, ...]


@dataclass(frozen=True)
class Chosen:
    """The outcome of building one kernel.

    Attributes:
        config: the config that was taken.
        kernels: its device kernels.
        compile_s: seconds that went into it.
    """

    config: Config
    kernels: tuple[Kernel, ...]
    compile_s: float = 0.0

    @property
    def local_bytes(self) -> int:
        """Local memory of its worst kernel."""
        return max((kernel.local_bytes for kernel in self.kernels), default=0)


@dataclass(frozen=True)
class BuildKernels(Job):
    """Build ``wanted``; see ``build_kernels``."""

    wanted: tuple[Wanted, ...]
    library: Path | None


def build_kernels(
    wanted: Sequence[Wanted],
    target: Target,
    library: Path | None,
    server: ForkServerProcess | None = None,
) -> dict[str, Chosen]:
    """Build ``wanted`` in a worker process.

    Args:
        library: where to write the shared library; None only compiles and inspects.
        server: of the run, which keeps the process for its next build; None starts one for this build.

    Returns:
        What became of each, by symbol.

    Raises:
        InstallError: if the compiler is missing.
        MeasureError: if a kernel compiles in no config, or the worker had to be killed.
    """
    check_nvrtc()
    job = BuildKernels(
        tuple(wanted),
        library and library.resolve(),
        timeout_s=SECONDS_PER_CONFIG * (1 + len(wanted)),
    )
    with ExitStack() as stack:
        server = server or stack.enter_context(ForkServerProcess())
        variables = {} if has_driver() else {"LD_LIBRARY_PATH": str(make_stub(server.directory))}
        # The system reads the path of libraries when a program starts, so with a stand-in it is no fork.
        (answer,) = server.kept(Start(HANDLER, target, variables), fresh=bool(variables)).run([job])
    if isinstance(answer, Lost) and answer.error == "timeout":
        raise MeasureError(f"compiling CUDA kernels took more than {job.timeout_s:.0f} s and was stopped")
    if isinstance(answer, Lost):
        raise MeasureError(f"the process that compiles CUDA kernels died: {answer.message}")
    chosen: dict[str, Chosen] = answer
    return chosen


class CudaBuildHandler(Handler):
    """Builds for one target."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def answer(self, job: BuildKernels) -> dict[str, Chosen] | Refused:
        """Do one job; ``Refused`` if a kernel compiles in no config."""
        try:
            with ThreadPoolExecutor(read_host().usable_threads) as threads:
                built = list(threads.map(lambda kernel: _try(kernel, self._target), job.wanted))
        except ScheduleError as error:
            return Refused(MeasureError(str(error)))
        if job.library is not None:
            first, *others = (module for _, module in built)
            for module in others:
                first.mod.import_module(module.mod)
            first.export_library(str(job.library))
        return {kernel.symbol: chosen for kernel, (chosen, _) in zip(job.wanted, built, strict=True)}


def _scheduled(program: tirx.PrimFunc, config: Config, target: Target) -> tirx.PrimFunc:
    return lower(program, config, target).mod["main"]


def _try(wanted: Wanted, target: Target) -> tuple[Chosen, tvm.runtime.Executable]:
    """The first config that needs no local memory, else the one that needs least; and its code."""
    symbol, program = wanted.symbol, load_program(wanted.program)
    why = ""
    best: tuple[Chosen, tvm.runtime.Executable] | None = None
    began = time.perf_counter()
    for config in wanted.configs:
        try:
            module, compiled = compile_kernels({symbol: _scheduled(program, config, target)}, target)
        except Exception as error:  # whatever a config provokes in TVM or NVRTC is its failure, not the job's
            why = named_last_line(error)
            continue
        kernels = tuple(compiled.kernels.values())
        chosen = Chosen(config, kernels, time.perf_counter() - began)
        if not chosen.local_bytes:
            return chosen, module
        if best is None or chosen.local_bytes < best[0].local_bytes:
            best = chosen, module
    if best is None:
        raise ScheduleError(f"kernel {symbol} compiles in none of {len(wanted.configs)} configs: {why}")
    return best
