"""The handler of workers that build CUDA kernels with NVRTC and run them on the device."""

from __future__ import annotations

import hashlib
from typing import Any

from tvm import tirx

from autotune.backends.cuda.cuda_timing import DeviceBench
from autotune.backends.cuda.nvrtc import compile_kernels
from autotune.measure.kernel_builder import Builder
from autotune.measure.kernel_handler import KernelHandler, lowering_of
from autotune.measure.kernel_timing import Bench
from autotune.measure.messages import Settings
from schedules.vocabulary.errors import check


class CudaBuilder(Builder):
    """Writes a library with the cubin inside; equal cubins have equal hashes."""

    def compile(self, func: tirx.PrimFunc, symbol: str, library: str) -> str:
        """Compile ``func`` as ``symbol`` into ``library``; the hash of its machine code.

        Raises:
            ScheduleError: if the source does not compile.
        """
        module, compiled = compile_kernels({symbol: func}, self._target)
        module.export_library(library)
        check(compiled.cubins, "no machine code was made; see whether the CUDA driver can be loaded")
        return hashlib.sha256(b"".join(compiled.cubins)).hexdigest()[:16]


class CudaHandler(KernelHandler):
    """Builds with NVRTC and runs on the device."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        super().__init__(CudaBuilder(settings.target, lowering_of(settings)))

    def _open(self) -> Bench[Any]:
        return DeviceBench(self._settings)
