"""The request for a build and its result: plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from autotune.artifact.make_plan import make_plan, record_key
from autotune.artifact.plan import Choice, Plan
from autotune.builder.accuracy import Built, Passed, first_that_passes
from autotune.builder.lane_budget import for_threads
from autotune.builder.reuse import Reuse
from autotune.graph.lanes import Lane
from autotune.host.worker_pool import ForkServerProcess
from autotune.importer.guarded_import import import_model
from autotune.importer.program import Program
from autotune.measure.measurer import MeasurementBackend
from autotune.options import Options, Precision
from autotune.validation.verdict import Verdict
from schedules.lower import BASELINE, MOST_LOSSY, loss
from schedules.target import Target
from tuning_logs.sql_store import TuningLog

LATENCY = "latency_ms"
"""Provenance field: the whole model's latency in milliseconds, ``untuned`` and ``tuned``."""


class ImportedModel:
    """One ONNX file with the shapes and the precision of its options, imported once for each kind of target.

    It keeps the programs with their weights. All numbers of threads share an import: they differ in spaces only.

    Args:
        open_sizes: rows of the batch and positions, if calls may have fewer than the shapes, as ``Spaces`` takes them.
    """

    def __init__(self, path: Path, options: Options, open_sizes: tuple[int, ...] = ()) -> None:
        self.path, self._options, self._open_sizes = path, options, open_sizes
        self._known: dict[Target, tuple[onnx.ModelProto, Program, int]] = {}

    def for_target(self, target: Target) -> tuple[onnx.ModelProto, Program]:
        """Return the checked model, and its program with the spaces of ``target``.

        Raises:
            ModelError, UsageError: as ``import_model``.
        """
        kind = replace(target, threads=1)
        if kind not in self._known:
            options = self._options
            precision, generates = Precision.parse(options.precision), options.generate is not None
            model, program = import_model(self.path, options.inputs, target, precision=precision, generates=generates)
            if self._open_sizes:
                program = for_threads(replace(program, open_sizes=self._open_sizes), target)
            self._known[kind] = model, program, target.threads
        model, program, threads = self._known[kind]
        return model, program if threads == target.threads else for_threads(program, target)


@dataclass(frozen=True)
class LaneKernels:
    """A model's kernels for lanes of one size.

    Attributes:
        target: with the lane's threads.
        program: the model with the spaces of that target.
        tasks: keys of the tasks that such lanes may run.
        measurer: compiles for the target; None for a device, whose build compiles by itself.
    """

    target: Target
    program: Program
    tasks: frozenset[str]
    measurer: MeasurementBackend | None

    @property
    def tunable(self) -> Program:
        """The program with its own tasks only."""
        return replace(self.program, tasks=tuple(task for task in self.program.tasks if task.key in self.tasks))

    def plan(self, log: TuningLog, frozen: bool, most_loss: int) -> Plan:
        """The best known kernels of its own tasks; the others are left untuned, and are not built.

        Raises:
            MissingRecordError: as ``make_plan``.
        """
        own = self.tunable
        best = make_plan(own.tasks, own.spaces, self.target, log, frozen, most_loss)
        others = (Choice(task.key, BASELINE, None) for task in self.program.tasks if task.key not in self.tasks)
        return Plan(self.target, tuple(sorted((*best.choices, *others), key=lambda choice: choice.task)))

    def guessed_plan(self, log: TuningLog, frozen: bool, most_loss: int = MOST_LOSSY) -> Plan:
        """Work like ``plan``; tasks without records get the best config of the nearest task in the log, or a guess.

        Raises:
            MissingRecordError: if ``frozen`` and records are missing.
        """
        reuse = Reuse(log, self.target)

        def guessed(choice: Choice) -> Choice:
            space = self.program.spaces[choice.task]
            if choice.config != BASELINE or choice.task not in self.tasks or not space.knobs:
                return choice
            task = next(task for task in self.program.tasks if task.key == choice.task)
            key = record_key(task, space, self.target)
            if next(iter(log.records(key, space)), None) is not None:  # all that was tried failed, or was slower
                return choice
            guesses = reuse.guided(space, reuse.near(task, key)).initial
            allowed = [config for config in guesses if loss(config) <= most_loss]
            return replace(choice, config=allowed[0], latency_s=None) if allowed else choice

        known = self.plan(log, frozen, most_loss)
        return replace(known, choices=tuple(guessed(choice) for choice in known.choices))


@dataclass(frozen=True)
class BuildRequest:
    """A model to be built from the records of a log.

    Attributes:
        out: where the artifact goes.
        model: the checked ONNX model; the reference engine runs it.
        path: its file.
        target: the machine, with all threads that the artifact may use.
        kernels: threads of a lane → the model's kernels for such lanes.
        lanes: what may run subgraphs.
        log: records of kernels and profiles of subgraphs.
        timed: whether the whole model is timed. An interrupted run leaves that to the next one.
        compared: whether its outputs are compared with the reference's; not for a part of what is compared as a whole.
        server: of the run; None where this build starts its own processes.
    """

    out: Path
    model: onnx.ModelProto
    path: Path
    target: Target
    kernels: Mapping[int, LaneKernels]
    lanes: tuple[Lane, ...]
    log: TuningLog
    options: Options
    timed: bool = True
    compared: bool = True
    server: ForkServerProcess | None = None

    def first_that_passes(self, candidates: Iterable[Built]) -> Passed | None:
        """Work like ``accuracy.first_that_passes``, of builds of this model."""
        return first_that_passes(self.out, self.model, self.options.seed, candidates, self.server, self.compared)

    @property
    def whole(self) -> LaneKernels | None:
        """The kernels for all threads together; None where lanes of fewer threads were asked for by name."""
        return self.kernels.get(self.target.threads)

    @property
    def program(self) -> Program:
        """The model as imported, with the spaces of the largest lanes."""
        return self.kernels[max(self.kernels)].program


@dataclass(frozen=True)
class BuildResult:
    """The artifact that was installed.

    Attributes:
        verdict: its outputs compared with the reference's; None where they could not be computed here.
        latency_ms: ``untuned`` and ``tuned``, each the median of the whole model; None where it was not measured.
        verify_s: seconds of the build that comparing took.
        reason: why nothing was verified; empty if it was.
    """

    plan: Plan
    verdict: Verdict | None
    latency_ms: Mapping[str, float | None]
    verify_s: float = 0.0
    reason: str = ""
