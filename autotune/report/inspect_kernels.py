"""Looking inside: a model's tasks and what the log knows of them, and the code of an artifact's kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tvm

from autotune.artifact.directory import Artifact, read_artifact, read_tasks
from autotune.artifact.plan import record_key
from autotune.backends.cuda.nvrtc import compile_ptx
from autotune.backends.cuda.source import cuda_program, cuda_source
from autotune.host.roofline import measure_peak
from autotune.options import Options
from autotune.report.inspect_lanes import BranchRow, report_branches
from autotune.tuning.existing_log import known_log
from autotune.tuning.pipeline import load_program, resolve_target
from autotune.build.reuse import Reuse
from costmodels.choices import choose, did_you_mean
from schedules.config import Config
from schedules.errors import UsageError
from schedules.lower import load_program as load_prim_func
from schedules.lower import lower, tvm_target
from schedules.target import Target
from schedules.task import Task
from schedules.templates.common.indices import exact_indices
from schedules.templates.cpu.passes import compiled
from tuning_logs.record import TuningRecord

FORMS = {"tir": "", "llvm": "ll", "asm": "asm", "cuda": "", "ptx": ""}
"""Forms of a kernel: scheduled program, LLVM's code, machine code, CUDA source, PTX → TVM's name, where it has one."""

OF_KIND = {"llvm": ("tir", "llvm", "asm"), "cuda": ("tir", "cuda", "ptx")}
"""Kind of target → the forms its kernels have."""


@dataclass(frozen=True)
class TaskReport:
    """One task of a model.

    Attributes:
        bound_s: roofline bound in seconds: no kernel of this task is faster with its data in memory.
        tunable: whether there is anything to choose.
        trials: records in the log.
        best: the fastest record, or None.
        missing: why there is none, in words; empty otherwise.
        near: what other tasks in the log may teach, or why not, where there is no record; never a result.
    """

    task: Task
    bound_s: float
    tunable: bool
    trials: int
    best: TuningRecord | None
    missing: str
    near: str = ""

    @property
    def why(self) -> str:
        """One line: which record is used, or why none is."""
        if self.best is None:
            return f"not found: {self.missing}" + (f"; {self.near}" if self.near else "")
        host, best_us = self.best.host or "an unnamed machine", 1e6 * self.best.measurement.latency_s
        return f"used: {best_us:.1f} µs on {host}, the best of {self.trials} records"

    @property
    def best_s(self) -> float | None:
        """Least known latency in seconds."""
        return None if self.best is None else self.best.measurement.latency_s

    def to_data(self) -> dict[str, Any]:
        """As in ``tune tasks --json``."""
        source = None
        if self.best is not None:
            source = {"host": self.best.host, "when": self.best.when, "config": self.best.config.to_json()}
        return {
            "key": self.task.key,
            "name": self.task.name,
            "template": self.task.template,
            "shapes": self.task.shapes,
            "weight": self.task.weight,
            "flop": self.task.flop,
            "bytes": self.task.bytes,
            "bound_us": 1e6 * self.bound_s,
            "tunable": self.tunable,
            "trials": self.trials,
            "best_us": None if self.best_s is None else 1e6 * self.best_s,
            "gflops": None if self.best_s is None else self.task.flop / self.best_s / 1e9,
            "roofline_share": None if self.best_s is None else self.bound_s / self.best_s,
            "source": source,
            "missing": self.missing or None,
            "near": self.near or None,
        }


@dataclass(frozen=True)
class ModelReport:
    """A model's tasks on one target, most work first."""

    model: str
    target: Target
    gflops: float
    memory_gb_s: float
    tasks: tuple[TaskReport, ...]
    branches: tuple[BranchRow, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """As in ``tune tasks --json``."""
        return {
            "model": self.model,
            "target": self.target.fingerprint,
            "threads": self.target.threads,
            "peak": {"gflops": self.gflops, "memory_gb_s": self.memory_gb_s},
            "tasks": [report.to_data() for report in self.tasks],
            "branches": [asdict(branch) for branch in self.branches],
        }


def report_tasks(model_path: Path, options: Options) -> ModelReport:
    """The tasks of a model and what the log knows of them; nothing is measured but the machine's peak, where it is not
    known well enough yet (``measure_peak``).

    Raises:
        AutotuneError: for a bad model, option or log.
    """
    target = resolve_target(options)
    _, program = load_program(model_path, options, target)
    peak = measure_peak(target)
    log = known_log(options.log)
    reports = []
    try:
        reuse = Reuse(log, target)
        for task in program.tasks:
            space = program.spaces[task.key]
            key = record_key(task, space, target)
            best = log.best(key) if space.knobs else None
            missing = log.explain_miss(key) if space.knobs and best is None else ""
            count = log.counts(task.key).get(key)
            bound_s = peak.bound_s(int(task.flop / space.saving), task.bytes)
            near = reuse.near(task, key).told() if missing else ""
            trials = count.total if count else 0
            reports.append(TaskReport(task, bound_s, bool(space.knobs), trials, best, missing, near))
    finally:
        log.close()
    branches = report_branches(program, target)
    return ModelReport(model_path.name, target, peak.gflops, peak.memory_gb_s, tuple(reports), branches)


@dataclass(frozen=True)
class Kernel:
    """One kernel of an artifact.

    Attributes:
        config: how it was built.
        latency_s: what it was measured at in seconds; None if it was not.
        code: its code in the form asked for; empty if none was.
    """

    task: Task
    config: Config
    latency_s: float | None
    code: str = ""

    def to_data(self) -> dict[str, Any]:
        """As in ``tune kernels --json``."""
        return {
            "key": self.task.key,
            "name": self.task.name,
            "template": self.task.template,
            "weight": self.task.weight,
            "flop": self.task.flop,
            "config": self.config.to_json(),
            "latency_us": None if self.latency_s is None else 1e6 * self.latency_s,
            "code": self.code or None,
        }


def report_kernels(path: Path, task: str | None = None, emit: str | None = None) -> list[Kernel]:
    """The kernels of the artifact at ``path``, most work first.

    Args:
        task: key, the beginning of a key, or name of the only kernel wanted; None for all.
        emit: also re-lower each, and give its code.

    Raises:
        ArtifactError: if the artifact is damaged or not for this machine.
        UsageError: if no task, or several, are called ``task``, or ``emit`` is no form.
    """
    if emit is not None:
        choose("form", emit, FORMS)
    artifact = read_artifact(path)
    tasks, programs = read_tasks(path)
    wanted = tasks if task is None else (find_task(tasks, task),)
    return [_kernel(artifact, each, programs[each.key], emit) for each in wanted]


def _kernel(artifact: Artifact, task: Task, program: str, emit: str | None) -> Kernel:
    choice = next(choice for choice in artifact.plan.choices if choice.task == task.key)
    code = "" if emit is None else emit_kernel(program, choice.config, artifact.target, emit)
    return Kernel(task, choice.config, choice.latency_s, code)


def emit_kernel(program: str, config: Config, target: Target, emit: str) -> str:
    """The code of ``program`` scheduled by ``config``.

    Raises:
        UsageError: if kernels for ``target`` have no such form.
        InstallError: if NVRTC, which makes PTX, is not there.
    """
    if emit not in OF_KIND[target.kind]:
        raise UsageError(f"kernels for {target.kind} have no form {emit!r}; give {' or '.join(OF_KIND[target.kind])}")
    schedule = lower(load_prim_func(program), config, target)
    if emit == "cuda":
        return cuda_source(schedule, target)
    if emit == "ptx":
        return compile_ptx(cuda_program(schedule, target).source, target.arch)
    func = schedule.mod["main"]
    if emit == "tir":
        return str(tvm.IRModule({"main": exact_indices(func)}).script())
    return str(compiled(func, "main", tvm_target(target)).mod.inspect_source(FORMS[emit]))


def find_task(tasks: Iterable[Task], wanted: str) -> Task:
    """The task whose key is or begins with ``wanted``, or that is called so.

    Raises:
        UsageError: naming near ones if there is none, all if there are several.
    """
    tasks = tuple(tasks)
    found = [task for task in tasks if task.name == wanted or task.key.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"several tasks begin with {wanted!r}: {', '.join(task.key for task in found)}; give more")
    names = [name for task in tasks for name in (task.key, task.name)]
    raise UsageError(f"no task is called {wanted!r}; {did_you_mean(wanted, names)}'tune kernels ARTIFACT' lists them")
