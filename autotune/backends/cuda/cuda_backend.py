"""CUDA devices: NVRTC makes the machine code, the driver runs it as one graph."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import tvm

from autotune.artifact.directory import Artifact
from autotune.backends.cpu.libraries import open_library
from autotune.backends.cuda.cuda_device import CudaDevice, usable_bytes
from autotune.backends.cuda.cuda_executor import CudaExecutor, check_device
from autotune.backends.cuda.device import check_present, measuring_device, ordinal_of
from autotune.backends.cuda.driver import Driver
from autotune.backends.cuda.nvrtc import check_nvrtc, compile_ptx
from autotune.backends.cuda.source import cuda_program, cuda_source
from autotune.backends.device_interface import Device, Room, fitting_weights
from autotune.backends.executor import Executor, LiveCase
from autotune.graph.lanes import Lane, devices_of
from autotune.graph.steps import LiveRows
from autotune.host.roofline import Roofline
from autotune.host.worker_pool import ForkServerProcess
from autotune.importer.program import Program
from autotune.interface import Growth
from autotune.measure.local_measurer import LocalMeasurer
from autotune.measure.measure_limits import MeasureLimits, RemoteTarget, Shared
from autotune.options import Options
from schedules.config import Config
from schedules.lower import is_scheduled, load_program, lower
from schedules.target import Target
from schedules.templates.common.indices import exact_indices
from schedules.templates.cuda.cuda_recurrent import OP as RECURRENT
from schedules.vocabulary.errors import ModelError, UsageError

logger = logging.getLogger(__name__)

DEVICE = "cuda:0"

COMPILE_TIMEOUT_S = 20.0
"""Wall-clock limit of one candidate's build: NVRTC takes 0.3 to 2 s for ordinary kernels."""

HANDLER = "autotune.backends.cuda.cuda_handler:CudaHandler"

ADDRESS_BYTES = 1 << 50
"""Address space that a worker may use, bytes: a CUDA context reserves terabytes, and its memory is the device's."""


PEAKS = {
    "sm_80": (19500.0, 2039.0, 156000.0),
    "sm_86": (37400.0, 936.0, 75000.0),
    "sm_89": (91600.0, 1008.0, 183000.0),
    "sm_90": (67000.0, 4800.0, 495000.0),
}
"""GPU architecture → fp32 GFLOPS, GB/s of memory and TF32 GFLOPS of its fastest common devices: A100; RTX 3090
and A40; L40S; H200."""

HALVES, BYTES = 2, 4
"""Speed of tensor cores on types of 16 and of 8 bits, relative to TF32."""

L2_PER_MEMORY = 4.0
"""Bandwidth of L2 over that of memory. Heuristic and generous: no data sheet has it, and a bound may be too low in
seconds but never too high."""


@dataclass(frozen=True)
class CudaBackend:
    """The backend of ``cuda`` targets."""

    kind: str = "cuda"
    forms: tuple[str, ...] = ("tir", "cuda", "ptx")
    has_lanes: bool = False
    forks: bool = False

    def check_options(self, options: Options) -> None:
        """See ``Backend.check_options``. Tuning needs a device in this machine, and NVRTC."""
        if options.device and not tvm.cuda(0).exist:
            raise UsageError(
                "this machine has no CUDA device to tune on; give --no-device to build without measuring, "
                "or make a job for another machine with 'tune pack'"
            )
        if options.device:
            check_present(options.lanes, devices_of(options.lanes))
        check_nvrtc()

    def check_program(self, model: str, program: Program) -> None:
        """Implement ``Backend.check_program``: kernels that are scheduled by hand are for CPUs, but for recurrences."""
        by_hand = (
            task.name
            for task in program.tasks
            if task.template != RECURRENT and is_scheduled(load_program(program.programs[task.key]))
        )
        if name := next(by_hand, None):
            raise ModelError(
                f"{model} has a kernel that is written for CPUs only ({name}); tune it with --target host, or with "
                "--lanes cpu,cuda:0, which leaves it to the CPU"
            )

    def lanes(self, options: Options, target: Target) -> tuple[Lane, ...]:
        """Implement ``Backend.lanes``: the whole device."""
        return (Lane(DEVICE, 0, target.threads, DEVICE),)

    def measures(self, options: Options) -> bool:
        """Implement ``Backend.measures``: with a device, and where measuring is allowed."""
        return options.device and not options.frozen

    def measurer(
        self, target: Target, evaluator: str, seed: int, server: ForkServerProcess | None = None
    ) -> LocalMeasurer:
        """Implement ``Backend.measurer``."""
        remote = RemoteTarget(HANDLER, measuring_device(target), (0,), ADDRESS_BYTES, forks=self.forks)
        limits = MeasureLimits(compile_s=COMPILE_TIMEOUT_S)
        return LocalMeasurer(
            target, evaluator=evaluator, seed=seed, limits=limits, remote=remote, shared=Shared(server=server)
        )

    def check_host(self, artifact: Artifact) -> None:
        """Nothing is refused: an artifact may be inspected without its device, and ``executor`` looks for that."""

    def roofline(self, target: Target) -> Roofline:
        """Implement ``Backend.roofline``, from the data sheet of the architecture's usual device."""
        return datasheet_roofline(target)

    def executor(self, artifact: Artifact, threads: int, cpus: Sequence[int] = ()) -> Executor:
        """Implement ``Backend.executor``."""
        check_device()  # first: without a driver TVM cannot even load the library
        library = open_library(artifact.library)
        artifact.check_held(artifact.library)
        budget = usable_bytes(Driver()) - artifact.steps.arena_bytes
        streaming = fitting_weights(DEVICE, artifact, budget)
        if streaming.buffer_bytes:
            logger.warning(
                "%s does not fit into the memory of %s: a part of its weights is streamed", artifact.path, DEVICE
            )
        return CudaExecutor(library, artifact.steps, artifact.weights, streaming=streaming)

    def live_rows(
        self, artifact: Artifact, symbol: str, rows: int, cases: Sequence[LiveCase], growths: Sequence[Growth] = ()
    ) -> LiveRows | None:
        """Implement ``Backend.live_rows``: a device always runs all of its blocks."""
        return None

    def device(self, lane: Lane, room: Room) -> Device:
        """Implement ``Backend.device``."""
        return CudaDevice(lane.device, room, ordinal_of(lane.device))

    def emit(self, program: str, config: Config, target: Target, form: str) -> str:
        """Implement ``Backend.emit``."""
        schedule = lower(load_program(program), config, target)
        if form == "cuda":
            return cuda_source(schedule, target)
        if form == "ptx":
            return compile_ptx(cuda_program(schedule, target).source, target.arch)
        return str(tvm.IRModule({"main": exact_indices(schedule.mod["main"])}).script())


def datasheet_roofline(target: Target) -> Roofline:
    """The roofline of a CUDA target, one of the architectures of ``PEAKS``."""
    gflops, memory_gb_s, tf32 = PEAKS[target.arch]
    short = {"bf16_gflops": HALVES * tf32, "int8_gops": BYTES * tf32, "tf32_gflops": tf32}
    return Roofline(gflops, memory_gb_s, L2_PER_MEMORY * memory_gb_s, target.l2_bytes, **short)
