"""CPUs: the native driver calls kernels on groups of cores, or TVM's virtual machine where shapes depend on data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tvm

from autotune.artifact.directory import Artifact, read_artifact
from autotune.backends.backend import Backend
from autotune.backends.cpu.device_lanes import device_functions
from autotune.backends.cpu.lane_executor import ANYWHERE, LaneExecutor
from autotune.backends.cpu.libraries import open_library
from autotune.backends.cpu.vm_executor import VmExecutor
from autotune.backends.executor import KernelExecutor
from autotune.graph.lanes import Lane, parse_lanes
from autotune.host.machine import host_target, thread_cpus
from autotune.host.roofline import Roofline, measure_roofline
from autotune.options import Options
from schedules.config import Config
from schedules.errors import ArtifactError
from schedules.lower import load_program, lower, tvm_target
from schedules.target import Target
from schedules.templates.common.indices import exact_indices
from schedules.templates.cpu.passes import compiled

if TYPE_CHECKING:  # running an artifact needs neither importer nor measurer, and both take long to load
    from autotune.importer.program import Program
    from autotune.measure.local_measurer import LocalMeasurer

TVM_FORMS = {"llvm": "ll", "asm": "asm"}
"""Form of a kernel's code → TVM's name of it."""

ISA_ORDER = ("generic", "avx2", "avx512", "amx")
"""Levels of x86-64, each of which runs code for those before it."""


@dataclass(frozen=True)
class CpuBackend:
    """The backend of ``llvm`` targets.

    Attributes:
        device: gives the backend of the subgraphs that an artifact placed on a device.
    """

    device: Callable[[], Backend]
    kind: str = "llvm"
    forms: tuple[str, ...] = ("tir", *TVM_FORMS)
    has_lanes: bool = True

    def check_options(self, options: Options) -> None:
        """As ``Backend.check_options``: what a CPU cannot do is refused where it is asked for."""

    def check_program(self, model: str, program: Program) -> None:
        """As ``Backend.check_program``: every program has kernels for a CPU."""

    def lanes(self, options: Options, target: Target) -> tuple[Lane, ...]:
        """As ``Backend.lanes``: groups of cores."""
        return parse_lanes(options.lanes, target.threads)

    def measures(self, options: Options) -> bool:
        """As ``Backend.measures``: always, since the measurer's workers compile what is built too."""
        return True

    def measurer(self, target: Target, evaluator: str, seed: int) -> LocalMeasurer:
        """As ``Backend.measurer``."""
        from autotune.measure.local_measurer import LocalMeasurer  # running an artifact measures nothing

        return LocalMeasurer(target, evaluator=evaluator, seed=seed)

    def check_host(self, target: Target, where: Path) -> None:
        """As ``Backend.check_host``: this CPU needs the instruction set that the kernels use."""
        here = host_target().isa
        levels = (here, target.isa)
        runs = here == target.isa or (
            all(level in ISA_ORDER for level in levels) and ISA_ORDER.index(target.isa) <= ISA_ORDER.index(here)
        )
        if not runs:
            raise ArtifactError(
                f"{where} was built for {target.isa} and this machine has {here}; tune it on this machine"
            )

    def roofline(self, target: Target) -> Roofline:
        """As ``Backend.roofline``, measured on this machine."""
        return measure_roofline(target)

    def executor(self, artifact: Artifact, threads: int, cpus: Sequence[int] = ()) -> KernelExecutor:
        """As ``Backend.executor``; on fewer cores than the artifact was placed on, some cores run several lanes."""
        library = open_library(artifact.library)
        if artifact.steps is None:
            return VmExecutor(library, artifact.weights)
        lanes = artifact.steps.lanes
        cores = max(lane.first + lane.threads for lane in lanes) if lanes else threads
        cpus = cpus or thread_cpus(cores)
        where = [cpus[core % len(cpus)] for core in range(cores)]
        for lane in lanes:
            if lane.device:
                where[lane.first] = ANYWHERE
        libraries = {artifact.target.threads: library}
        libraries |= {count: open_library(path) for count, path in artifact.lane_libraries.items()}
        devices = device_functions({name: self._on_device(path) for name, path in artifact.device_parts.items()})
        return LaneExecutor(libraries, artifact.steps, artifact.weights, where, devices)

    def _on_device(self, path: Path) -> tuple[KernelExecutor, int]:
        """What runs the device's part at ``path``, and how many outputs that has."""
        part = read_artifact(path)
        return self.device().executor(part, part.target.threads), len(part.outputs)

    def emit(self, program: str, config: Config, target: Target, form: str) -> str:
        """As ``Backend.emit``."""
        func = lower(load_program(program), config, target).mod["main"]
        if form == "tir":
            return str(tvm.IRModule({"main": exact_indices(func)}).script())
        return str(compiled(func, "main", tvm_target(target)).mod.inspect_source(TVM_FORMS[form]))
