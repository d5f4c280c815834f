"""The kernels of an artifact: their configs and their code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.artifact.directory import Artifact, read_artifact, read_tasks
from autotune.artifact.manifest import only_part
from autotune.artifact.precision_choice import choice_of, precision_of
from autotune.backends.backend_catalog import BACKENDS, backend_of
from autotune.backends.device_interface import weights_bytes
from schedules.config import Config
from schedules.task import Task
from schedules.vocabulary.choices import choose, did_you_mean
from schedules.vocabulary.errors import UsageError


@dataclass(frozen=True)
class Kernel:
    """One kernel of an artifact.

    Attributes:
        config: how it was built.
        latency_s: what it was measured at in seconds; None if it was not.
        error: of the model's outputs where this kernel alone computes in bf16, as a share of their root mean square;
            None where ``--precision auto`` did not need it.
        code: its code in the form asked for; empty if none was.
    """

    task: Task
    config: Config
    latency_s: float | None
    error: float | None = None
    code: str = ""

    def to_data(self) -> dict[str, Any]:
        """As in ``tune kernels --json``."""
        return {
            "key": self.task.key,
            "name": self.task.name,
            "template": self.task.template,
            "weight": self.task.weight,
            "flop": self.task.flop,
            "precision": precision_of(self.task),
            "error": self.error,
            "config": self.config.to_json(),
            "latency_us": None if self.latency_s is None else 1e6 * self.latency_s,
            "code": self.code or None,
        }


def report_kernels(path: Path, task: str | None = None, emit: str | None = None) -> list[Kernel]:
    """The kernels of the artifact at ``path``, most work first.

    Args:
        task: key, the beginning of a key, or name of the only kernel wanted; None for all.
        emit: the form of code to add, made anew from the config; None adds none.

    Raises:
        ArtifactError: if the artifact is damaged or not for this machine.
        UsageError: if no task, or several, are called ``task``, or if the kernels have no form ``emit``.
        InstallError: if a compiler that the form needs is missing.
    """
    if emit is not None:
        choose("--emit", emit, {form: form for backend in BACKENDS.values() for form in backend().forms})
    path = only_part(path)
    artifact = read_artifact(path)
    tasks, programs = read_tasks(path)
    wanted = tasks if task is None else (find_task(tasks, task),)
    choices = {choice.task: choice for choice in artifact.plan.choices}
    decided = choice_of(artifact.provenance)
    errors = {} if decided is None else decided.errors()
    kernels = []
    for chosen in wanted:
        choice = choices[chosen.key]
        code = "" if emit is None else _code(artifact, programs[chosen.key], choice.config, emit)
        kernels.append(Kernel(chosen, choice.config, choice.latency_s, errors.get(chosen.key), code))
    return kernels


def report_memory(path: Path) -> dict[str, int]:
    """Bytes that a session of the artifact at ``path`` needs: of its weights, once, and of an arena for each stream.

    Raises:
        ArtifactError: if the artifact is damaged or not for this machine.
    """
    artifact = read_artifact(only_part(path))
    return {"weights_bytes": weights_bytes(artifact), "arena_bytes": artifact.steps.arena_bytes}


def _code(artifact: Artifact, program: str, config: Config, form: str) -> str:
    """The code of ``program`` scheduled by ``config``.

    Raises:
        UsageError: if kernels of the artifact's target have no such form.
    """
    backend = backend_of(artifact.target)
    if form not in backend.forms:
        raise UsageError(f"kernels for {backend.kind} have no form {form!r}; give {' or '.join(backend.forms)}")
    return backend.emit(program, config, artifact.target, form)


def find_task(tasks: Iterable[Task], wanted: str) -> Task:
    """The task whose key is or begins with ``wanted``, or whose name it is.

    Raises:
        UsageError: naming near ones if there is none, all if there are several.
    """
    tasks = tuple(tasks)
    matches = [task for task in tasks if task.name == wanted or task.key.startswith(wanted)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"several tasks begin with {wanted!r}: {', '.join(task.key for task in matches)}; give more")
    names = [name for task in tasks for name in (task.key, task.name)]
    raise UsageError(f"no task is called {wanted!r}; {did_you_mean(wanted, names)}'tune kernels ARTIFACT' lists them")
