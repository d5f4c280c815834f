"""A worker for CUDA: builds with NVRTC, runs on the device."""

from __future__ import annotations

import hashlib

import tvm
from tvm import tirx

from autotune.backends.cuda.cuda_timing import DeviceBench
from autotune.backends.cuda.nvrtc import nvrtc_for
from autotune.measure.kernel_builder import Builder, Lowering
from autotune.measure.messages import Broken, BuildJob, Job, ReferenceJob, Reply, Settings
from autotune.measure.worker import Desk
from schedules.errors import check
from schedules.target import Target
from schedules.templates.common.indices import exact_indices


class CudaBuilder(Builder):
    """Writes a library with the cubin inside; equal cubins have equal hashes."""

    def __init__(self, target: Target, lowering: Lowering) -> None:
        super().__init__(target, lowering)
        self._arch = target.arch

    def compile(self, func: tirx.PrimFunc, symbol: str, library: str) -> str:
        """Compile ``func`` as ``symbol`` into ``library``; the hash of its machine code.

        Raises:
            ScheduleError: if the source does not compile.
        """
        module = tvm.IRModule({symbol: exact_indices(func).with_attr("global_symbol", symbol)})
        with nvrtc_for(self._arch) as compiled:
            tvm.compile(module, target=self._tvm_target).export_library(library)
        check(compiled.cubins, "no machine code was made; see whether the CUDA driver can be loaded")
        return hashlib.sha256(b"".join(compiled.cubins)).hexdigest()[:16]


class CudaDesk(Desk):
    """Answers jobs; the device is opened at the first job that runs something, never before a fork."""

    def __init__(self, settings: Settings, lowering: Lowering) -> None:
        super().__init__(settings, lowering, _no_producer)
        self._builder = CudaBuilder(settings.target, lowering)
        self._device_bench: DeviceBench | None = None

    def answer(self, job: Job) -> Reply | Broken:
        """Do one job."""
        if isinstance(job, BuildJob):
            return self._builder.build(job)
        if self._device_bench is None:
            self._device_bench = DeviceBench(self._settings)
        return self._device_bench.reference(job) if isinstance(job, ReferenceJob) else self._device_bench.time(job)


def _no_producer(*_: object) -> None:
    """Activations of a device are rewritten by its own bench."""
    raise AssertionError("a CUDA desk times on the device")
