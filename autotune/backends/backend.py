"""What differs between kinds of target once a kernel has its space: one ``Backend`` per kind.

The spaces themselves, and how a config is applied, are a set of templates in ``schedules/`` chosen by the same kind.
Nothing but ``backends/registry.py`` asks which kind a target is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from autotune.artifact.directory import Artifact
from autotune.backends.executor import KernelExecutor
from autotune.host.roofline import Peak
from schedules.config import Config
from schedules.target import Target


class Backend(Protocol):
    """Execution, bounds and code of one kind of target.

    Attributes:
        kind: as ``Target.kind``.
        forms: what ``emit`` can show of a kernel, such as ``tir`` and ``asm``.
    """

    @property
    def kind(self) -> str: ...

    @property
    def forms(self) -> tuple[str, ...]: ...

    def check_host(self, target: Target, where: Path) -> None:
        """Whether this machine can run the artifact at ``where``, which was built for ``target``.

        Raises:
            ArtifactError: if it cannot, with what to do.
        """
        ...

    def roofline(self, target: Target) -> Peak:
        """The bounds that kernels for ``target`` cannot exceed, measured here or from a data sheet."""
        ...

    def executor(self, artifact: Artifact, threads: int) -> KernelExecutor:
        """What runs ``artifact``.

        Args:
            threads: threads of CPU kernels; a device has its own.

        Raises:
            ArtifactError: if this machine cannot run it, or a file is damaged.
        """
        ...

    def emit(self, program: str, config: Config, target: Target, form: str) -> str:
        """The code of a program (JSON text of a PrimFunc) scheduled by ``config``, in one of ``forms``.

        Raises:
            InstallError: if a compiler that this form needs is missing.
            ScheduleError: if the config does not apply.
        """
        ...
