"""The differences between kinds of target once a kernel has its space: one ``Backend`` per kind.

The spaces themselves, and how a config is applied, are a set of templates in ``schedules/`` chosen by the same kind.
Nothing but ``backends/backend_catalog.py`` asks which kind a target is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from autotune.artifact.directory import Artifact
from autotune.backends.device_interface import Device, Room
from autotune.backends.executor import Executor, LiveCase
from autotune.graph.lanes import Lane
from autotune.graph.steps import LiveRows
from autotune.interface import Growth
from autotune.options import Options
from schedules.config import Config
from schedules.target import Target

if TYPE_CHECKING:  # running an artifact needs neither importer nor measurer, and both take long to load
    from autotune.host.roofline import Roofline
    from autotune.host.worker_pool import ForkServerProcess
    from autotune.importer.program import Program
    from autotune.measure.local_measurer import LocalMeasurer


class Backend(Protocol):
    """Execution, bounds and code of one kind of target."""

    @property
    def kind(self) -> str:
        """The value of ``Target.kind``."""
        ...

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms in which ``emit`` can show a kernel, such as ``tir`` and ``asm``."""
        ...

    @property
    def has_lanes(self) -> bool:
        """Whether a program's subgraphs may be placed on groups of cores."""
        ...

    @property
    def forks(self) -> bool:
        """Whether its kernels run in a fork of a process that has loaded TVM; see ``host/fork_server.py``."""
        ...

    def check_options(self, options: Options) -> None:
        """Return whether this machine can do what the options ask for targets of this kind.

        Raises:
            UsageError: if not, with what to give instead.
            InstallError: if a compiler is missing.
        """
        ...

    def check_program(self, model: str, program: Program) -> None:
        """Return whether kernels for all of ``program`` can be made.

        Raises:
            ModelError: if not, naming ``model`` and what prevents it.
        """
        ...

    def lanes(self, options: Options, target: Target) -> tuple[Lane, ...]:
        """Return the lanes that may run subgraphs; one lane of the whole target unless the options ask for several."""
        ...

    def measures(self, options: Options) -> bool:
        """Return whether a run with these options needs ``measurer``."""
        ...

    def measurer(
        self, target: Target, evaluator: str, seed: int, server: ForkServerProcess | None = None
    ) -> LocalMeasurer:
        """Builds, checks and times kernels for ``target`` on this machine; a context manager.

        Args:
            server: of the run; None starts one for this measurer.
        """
        ...

    def check_host(self, artifact: Artifact) -> None:
        """Check that this machine can run ``artifact``.

        Raises:
            ArtifactError: if it cannot, with what to do.
        """
        ...

    def roofline(self, target: Target) -> Roofline:
        """The bounds that kernels for ``target`` cannot exceed, measured here or from a data sheet."""
        ...

    def executor(self, artifact: Artifact, threads: int, cpus: Sequence[int] = ()) -> Executor:
        """Return an executor that runs ``artifact``.

        Args:
            threads: threads of CPU kernels; a device has its own.
            cpus: logical CPUs to run on, for executors side by side; none for the first of this process.

        Raises:
            ArtifactError: if this machine cannot run it, or a file is damaged.
        """
        ...

    def live_rows(
        self, artifact: Artifact, symbol: str, rows: int, cases: Sequence[LiveCase], growths: Sequence[Growth] = ()
    ) -> LiveRows | None:
        """Return the jobs that ``artifact``, built for ``rows`` of the open size ``symbol``, may leave out for fewer.

        Args:
            cases: calls to find it out with, as kernels read their inputs.
            growths: ways in which axes may follow the open size, besides as many.
        """
        ...

    def device(self, lane: Lane, room: Room) -> Device:
        """The device of a lane next to the CPU's.

        Raises:
            ArtifactError: if this machine has no such device.
            RunError: if it has no room.
        """
        ...

    def emit(self, program: str, config: Config, target: Target, form: str) -> str:
        """The code of a program (JSON text of a PrimFunc) scheduled by ``config``, in one of ``forms``.

        Raises:
            InstallError: if a compiler that this form needs is missing.
            ScheduleError: if the config does not apply.
        """
        ...
