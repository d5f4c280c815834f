"""The handler of workers that build CUDA kernels with NVRTC and run them on the device."""

from __future__ import annotations

import hashlib
from typing import Any

import tvm
from tvm import tirx

from autotune.backends.cuda.cuda_timing import DeviceBench
from autotune.backends.cuda.nvrtc import nvrtc_for
from autotune.measure.kernel_builder import Builder, Lowering
from autotune.measure.kernel_handler import KernelHandler, lowering_of
from autotune.measure.kernel_timing import Bench
from autotune.measure.messages import Settings
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


class CudaHandler(KernelHandler):
    """Builds with NVRTC and runs on the device."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        super().__init__(CudaBuilder(settings.target, lowering_of(settings)))

    def _open(self) -> Bench[Any]:
        return DeviceBench(self._settings)
