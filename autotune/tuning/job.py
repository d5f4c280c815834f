"""Job: one task being tuned, with its searcher and what measuring it has brought."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.measure.measurer import Candidate, Origin
from schedules.config import Config
from schedules.space import Space
from schedules.task import Task
from search.allocators.allocation import TaskState
from search.allocators.stopping import credible_bound_s
from search.searchers.searcher import Result, Searcher, Siblings
from search.searchers.warm_restart import WarmRestart
from tuning_logs.codec import MOST_SPENT_S
from tuning_logs.measurement import Measurement
from tuning_logs.record import RecordKey, TuningRecord

WALL = "wall_s"
"""Provenance field: the trial's share of its slot's wall-clock time, by which a resumed run knows what was spent."""

STAGE, FINAL = "stage", "final"
"""Provenance field of a finalist's record, which corrects an earlier one and is no trial of its own."""


def wall_s(record: TuningRecord) -> float:
    """Wall-clock seconds that the trial of ``record`` took; its compile time where they were not recorded."""
    try:
        told = float(record.provenance[WALL])
    except (KeyError, ValueError):
        return record.measurement.compile_s
    return told if 0.0 <= told <= MOST_SPENT_S else record.measurement.compile_s


@dataclass(frozen=True)
class KernelTask:
    """A task with all that identifies and bounds its candidates.

    Attributes:
        program: the task's normalised PrimFunc as JSON text.
        key: of its records in the log.
        space: its configs.
        bound_s: roofline bound of one run in seconds.
    """

    task: Task
    program: str
    key: RecordKey
    space: Space
    bound_s: float


class Job:
    """A task, its searcher and what measuring it has brought.

    Args:
        kernel: what is tuned.
        searcher: asked for configs and told their measurements.
        seed: of the searcher; recorded.
        provenance: recorded with every measurement.
        warm_restart: makes the searcher anew from the results of sibling tasks; None keeps the first searcher.

    Attributes:
        results: everything that the searcher was told.
        reused_records: how many records of the log it began with.
        is_tuned: whether this run has measured anything of the task.
    """

    def __init__(
        self,
        kernel: KernelTask,
        searcher: Searcher,
        seed: int = 0,
        provenance: Mapping[str, str] | None = None,
        warm_restart: WarmRestart | None = None,
    ) -> None:
        self.kernel = kernel
        self._searcher = searcher
        self._seed = seed
        self._provenance = dict(provenance or {})
        self._warm_restart = warm_restart
        self._latencies: list[float | None] = []
        self._spent: list[float] = []
        self._exhausted = False
        self._measured: dict[Config, float] = {}
        self.results: list[Result] = []
        self.reused_records = 0
        self.is_tuned = False

    @property
    def task(self) -> Task:
        """The task that is tuned."""
        return self.kernel.task

    @property
    def state(self) -> TaskState:
        """The state of the task, as far as an allocator may know it."""
        return TaskState(
            self.task.key,
            self.task.template,
            self.task.weight,
            self.task.flop,
            credible_bound_s(self.kernel.bound_s, self._latencies),
            tuple(self._latencies),
            tuple(self._spent),
            self._exhausted,
        )

    @property
    def incumbent(self) -> tuple[Config, float] | None:
        """The fastest config and its latency in seconds, each config by its newest measurement; None before any."""
        return min(self._measured.items(), key=lambda item: item[1], default=None)

    @property
    def measured(self) -> dict[Config, float]:
        """Valid configs in the order they were first tried → latency in seconds by their newest measurement."""
        return dict(self._measured)

    @property
    def wants_siblings(self) -> bool:
        """Whether results of sibling tasks may still change the searcher."""
        return self._warm_restart is not None and self._warm_restart.wanted(len(self.results))

    def resume(self, records: Sequence[TuningRecord]) -> None:
        """Take over what the log knows of this task."""
        self.reused_records = len(records)
        if records:
            self.results += [(record.config, record.measurement) for record in records]
            self._searcher.tell(self.results)
        for record in records:
            if record.provenance.get(STAGE) != FINAL:
                self._add((record.config, record.measurement), wall_s(record))

    def ask(self, count: int, siblings: Siblings = ()) -> list[Config]:
        """Configs for the next slot; none if no untried config is left.

        Args:
            siblings: results of the run's other tasks of the same template (``sibling_results``).
        """
        if self._warm_restart is not None:
            renewed = self._warm_restart.searcher_after(len(self.results), siblings)
            if renewed is not None:
                self._searcher = renewed
                if self.results:
                    self._searcher.tell(self.results)
        configs = self._searcher.ask(count)
        self._exhausted = not configs
        return configs

    def candidate(self, config: Config) -> Candidate:
        """``config`` with the program it applies to."""
        return Candidate(self.task, self.kernel.program, config)

    def finalists(self, count: int, close: float) -> list[Config]:
        """Up to ``count`` configs within ``close`` times the best latency, fastest first."""
        ranked = sorted(self._measured, key=self._measured.__getitem__)
        return [config for config in ranked[:count] if self._measured[config] <= close * self._measured[ranked[0]]]

    def records(
        self,
        results: Sequence[Result],
        wall_s: float,
        stage: str = "",
        origins: Sequence[Origin] = (),
    ) -> list[TuningRecord]:
        """Results of a slot as log records.

        Args:
            wall_s: seconds of each trial.
            stage: ``FINAL`` for finalists, else empty.
            origins: who measured each, if not this machine.
        """
        provenance = {**self._provenance, WALL: f"{wall_s:.6f}"}
        if stage:
            provenance[STAGE] = stage
        when = time.time()
        return [
            TuningRecord(
                self.kernel.key,
                config,
                measurement,
                measurement.trace,
                when,
                origin.host,
                self._seed,
                {**provenance, **origin.provenance},
            )
            for (config, measurement), origin in zip(
                results, origins or [Origin(platform.node())] * len(results), strict=True
            )
        ]

    def tell(self, results: Sequence[Result], wall_s: float) -> None:
        """Learn from a slot whose trials took ``wall_s`` seconds each."""
        for result in results:  # before the searcher learns, which takes time: an interrupted run counts what is logged
            self._add(result, wall_s)
        if results:
            self.results += results
            self._searcher.tell(results)
            self.is_tuned = True

    def _add(self, result: tuple[Config, Measurement], cost_s: float) -> None:
        config, measurement = result
        if measurement.ok:
            self._measured[config] = measurement.latency_s
        self._latencies.append(measurement.latency_s if measurement.ok else None)
        self._spent.append(cost_s)


def sibling_results(job: Job, jobs: Iterable[Job]) -> Siblings:
    """Spaces and results of the other ``jobs`` of the same template, nearest in operations first.

    Empty where they cannot change the searcher of ``job`` any more.
    """
    if not job.wants_siblings:
        return ()
    siblings = [
        other for other in jobs if other is not job and other.task.template == job.task.template and other.results
    ]
    siblings.sort(key=lambda other: abs(math.log((other.task.flop + 1) / (job.task.flop + 1))))
    return tuple((other.kernel.space, tuple(other.results)) for other in siblings)
