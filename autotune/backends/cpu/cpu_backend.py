"""CPUs: the core calls kernels on groups of cores.

Code that needs TVM is imported where it is used: running an artifact does without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.artifact.directory import Artifact
from autotune.backends.backend import Backend
from autotune.backends.cpu.device_lanes import device_calls
from autotune.backends.cpu.native_executor import NativeExecutor, thread_places
from autotune.backends.cpu.native_library import NativeLibrary
from autotune.backends.device_interface import Device, Room
from autotune.backends.executor import Executor, LiveCase
from autotune.graph.lanes import Lane, parse_lanes
from autotune.graph.steps import LiveRows
from autotune.host.cpu_claims import session_cpus
from autotune.host.machine import missing_features, read_host, runs_here
from autotune.interface import Growth
from autotune.options import TF32, Options
from schedules.config import Config
from schedules.processors import levels_of
from schedules.target import Target
from schedules.vocabulary.errors import ArtifactError, UsageError

if TYPE_CHECKING:  # running an artifact needs neither importer nor measurer, and both take long to load
    from autotune.host.roofline import Roofline
    from autotune.host.worker_pool import ForkServerProcess
    from autotune.importer.program import Program
    from autotune.measure.local_measurer import LocalMeasurer


@dataclass(frozen=True)
class CpuBackend:
    """The backend of ``llvm`` targets.

    Attributes:
        backend_of: gives the backend of a target: those of subgraphs that an artifact placed on a device.
    """

    backend_of: Callable[[Target], Backend]
    kind: str = "llvm"
    forms: tuple[str, ...] = ("tir", "llvm", "asm", "loop")
    has_lanes: bool = True
    forks: bool = True

    def check_options(self, options: Options) -> None:
        """Implement ``Backend.check_options``: kernels run here, unless they are built for elsewhere on one lane."""
        if options.device and options.target is not None and not runs_here(options.target):
            raise UsageError(
                f"kernels for {options.target.mcpu or options.target.isa} cannot run on this machine; give --no-device "
                "to build without measuring"
            )
        if options.precision.startswith(("fp16", TF32)):
            operands = "TF32" if options.precision.startswith(TF32) else "float16"
            raise UsageError(
                f"--precision {options.precision}: CPU kernels have no products of {operands}; choose bf16 or "
                "--target cuda"
            )

    def check_program(self, model: str, program: Program) -> None:
        """Implement ``Backend.check_program``: every program has kernels for a CPU."""

    def lanes(self, options: Options, target: Target) -> tuple[Lane, ...]:
        """Implement ``Backend.lanes``: groups of cores."""
        return parse_lanes(options.lanes, target.threads)

    def measures(self, options: Options) -> bool:
        """Implement ``Backend.measures``: always, since the measurer's workers compile what is built too."""
        return True

    def measurer(
        self, target: Target, evaluator: str, seed: int, server: ForkServerProcess | None = None
    ) -> LocalMeasurer:
        """Implement ``Backend.measurer``."""
        # Running an artifact measures nothing.
        from autotune.measure.local_measurer import LocalMeasurer
        from autotune.measure.measure_limits import Shared  # likewise

        return LocalMeasurer(target, evaluator=evaluator, seed=seed, shared=Shared(server=server))

    def check_host(self, artifact: Artifact) -> None:
        """Implement ``Backend.check_host``: this CPU needs every feature that the kernels may use."""
        host, target = read_host(), artifact.target
        if artifact.cpu and not host.flags:
            raise ArtifactError(
                f"{artifact.path} needs {', '.join(artifact.cpu)}, and the system does not say what this CPU has; make "
                "/proc/cpuinfo readable"
            )
        if target.isa not in levels_of(host.isas[0]):
            raise ArtifactError(
                f"{artifact.path} was built for {target.isa} and this machine has {host.isas[0]}; tune it on this "
                "machine"
            )
        missing = missing_features(artifact.cpu, host)
        if missing:
            raise ArtifactError(
                f"{artifact.path} was built for {target.mcpu or target.isa}, and this machine lacks "
                f"{', '.join(missing)}; tune it on this machine"
            )

    def roofline(self, target: Target) -> Roofline:
        """Implement ``Backend.roofline``, measured on this machine."""
        from autotune.host.roofline import measure_roofline  # loads TVM

        return measure_roofline(target)

    def executor(self, artifact: Artifact, threads: int, cpus: Sequence[int] = ()) -> Executor:
        """Implement ``Backend.executor``; on fewer cores than it was placed on, some run several lanes."""
        lanes = artifact.steps.lanes
        if artifact.device_parts and not artifact.steps.device_bytes:
            raise ArtifactError(f"{artifact.path} was placed by a version without copies; tune the model again")
        cores = max(lane.first + lane.threads for lane in lanes) if lanes else threads
        cpus = cpus or session_cpus(cores)
        where = thread_places(lanes, cpus) if lanes else [cpus[core % len(cpus)] for core in range(cores)]
        paths = {artifact.target.threads: artifact.library, **artifact.lane_libraries}
        libraries = {count: NativeLibrary(path, artifact.place_of(path)) for count, path in paths.items()}
        calls = device_calls(artifact.steps, *self.devices(artifact)) if artifact.steps.device_bytes else {}
        return NativeExecutor(libraries, artifact.steps, artifact.weights, where, calls, artifact.live)

    def live_rows(
        self, artifact: Artifact, symbol: str, rows: int, cases: Sequence[LiveCase], growths: Sequence[Growth] = ()
    ) -> LiveRows | None:
        """Implement ``Backend.live_rows``: of programs on one lane, those of the core."""
        if artifact.steps.lanes:
            return None
        from autotune.backends.cpu.live_rows import live_rows  # running an artifact does not need it

        library = NativeLibrary(artifact.library, artifact.place_of(artifact.library))
        return live_rows(library, artifact.steps, artifact.weights, symbol, rows, cases, growths)

    def devices(self, artifact: Artifact) -> tuple[dict[str, Device], dict[str, Artifact]]:
        """The devices that parts of ``artifact`` were placed on, opened, and those parts by subgraph."""
        parts = {name: artifact.open_device_part(name) for name in artifact.device_parts}
        lane_of = {group.name: artifact.steps.lanes[group.lane] for group in artifact.steps.groups}
        devices: dict[str, Device] = {}
        with ExitStack() as opened:  # one that is missing leaves none of the others open
            for device, size in artifact.steps.device_bytes:
                own = {name: part for name, part in parts.items() if lane_of[name].device == device}
                if own:
                    name, part = next(iter(own.items()))
                    room = Room.of(size, lane_of[name].limit_bytes, own.values())
                    devices[device] = self.backend_of(part.target).device(lane_of[name], room)
                    opened.callback(devices[device].close)
            opened.pop_all()
        return devices, parts

    def device(self, lane: Lane, room: Room) -> Device:
        """Implement ``Backend.device``: a CPU has none."""
        raise ArtifactError(f"subgraphs on {lane.device} have kernels for a CPU; tune the model again")

    def emit(self, program: str, config: Config, target: Target, form: str) -> str:
        """Implement ``Backend.emit``."""
        from autotune.backends.cpu.emitted_code import emitted  # loads TVM

        return emitted(program, config, target, form)
