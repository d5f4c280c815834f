"""CUDA devices: NVRTC makes the machine code, the driver runs it as one graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tvm

from autotune.artifact.directory import Artifact
from autotune.backends.cpu.libraries import open_library
from autotune.backends.cuda.cuda_executor import CudaExecutor, check_device
from autotune.backends.cuda.nvrtc import compile_ptx
from autotune.backends.cuda.source import cuda_program, cuda_source
from autotune.backends.executor import KernelExecutor
from autotune.host.roofline import Peak, measure_peak
from schedules.config import Config
from schedules.errors import ArtifactError
from schedules.lower import load_program, lower
from schedules.target import Target
from schedules.templates.common.indices import exact_indices


@dataclass(frozen=True)
class CudaBackend:
    """The backend of ``cuda`` targets."""

    kind: str = "cuda"
    forms: tuple[str, ...] = ("tir", "cuda", "ptx")

    def check_host(self, target: Target, where: Path) -> None:
        """Nothing is refused: an artifact may be inspected without its device, and ``executor`` looks for that."""

    def roofline(self, target: Target) -> Peak:
        """As ``Backend.roofline``, from the data sheet of the architecture's usual device."""
        return measure_peak(target)

    def executor(self, artifact: Artifact, threads: int) -> KernelExecutor:
        """As ``Backend.executor``."""
        check_device()  # first: without a driver TVM cannot even load the library
        library = open_library(artifact.library)
        if artifact.steps is None:
            raise ArtifactError(f"{artifact.path} has no steps; build the artifact again")
        return CudaExecutor(library, artifact.steps, artifact.weights)

    def emit(self, program: str, config: Config, target: Target, form: str) -> str:
        """As ``Backend.emit``."""
        schedule = lower(load_program(program), config, target)
        if form == "cuda":
            return cuda_source(schedule, target)
        if form == "ptx":
            return compile_ptx(cuda_program(schedule, target).source, target.arch)
        return str(tvm.IRModule({"main": exact_indices(schedule.mod["main"])}).script())
