"""The tasks of a model, and what a log knows of them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.artifact.make_plan import record_key
from autotune.backends.backend_catalog import backend_of
from autotune.builder.reuse import Reuse
from autotune.importer.guarded_import import import_memory, import_model
from autotune.options import AUTO, Options, Precision
from autotune.report.inspect_lanes import BranchRow, report_branches
from autotune.tuning.existing_log import known_log
from autotune.tuning.run_plan import resolve_target
from schedules.target import Target
from schedules.task import Task
from schedules.vocabulary.errors import UsageError
from tuning_logs.record import TuningRecord


@dataclass(frozen=True)
class TaskReport:
    """One task of a model.

    Attributes:
        bound_s: roofline bound in seconds: no kernel of this task is faster with its data in memory.
        tunable: whether there is anything to choose.
        trials: records in the log.
        best: the fastest record, or None.
        missing: why there is none, in words; empty otherwise.
        near: where there is no record, the similar tasks that a search would start from, or why none.
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
    """The tasks of a model and what the log knows of them.

    No kernel is measured. The machine's roofline is, where it is not known well enough yet.

    Raises:
        AutotuneError: for a bad model, option or log.
    """
    target = resolve_target(options)
    if options.precision == AUTO:
        raise UsageError("--precision auto is decided by a run; ask for the tasks of fp32 or of bf16")
    precision = Precision.parse(options.precision)
    with import_memory(options.import_memory):
        _, program = import_model(model_path, options.inputs, target, precision=precision)
    roofline = backend_of(target).roofline(target)
    reports = []
    with closing(known_log(options.log)) as log:
        reuse = Reuse(log, target)
        for task in program.tasks:
            space = program.spaces[task.key]
            key = record_key(task, space, target)
            best = log.best(key, space) if space.knobs else None
            missing = log.explain_miss(key) if space.knobs and best is None else ""
            count = log.counts(task.key).get(key)
            bound_s = roofline.bound_s(int(task.flop / space.saving), task.bytes, task.operands)
            near = reuse.near(task, key).told() if missing else ""
            trials = count.total if count else 0
            reports.append(TaskReport(task, bound_s, bool(space.knobs), trials, best, missing, near))
    branches = report_branches(program, target)
    return ModelReport(model_path.name, target, roofline.gflops, roofline.memory_gb_s, tuple(reports), branches)
