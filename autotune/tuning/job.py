"""Job: one task being tuned; what the session needs of it in one place."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence

from autotune.measure.measurer import Candidate, Origin
from autotune.tuning.sibling_tasks import Renewal
from schedules.config import Config
from schedules.task import Task
from search.allocation import Outlook, Outlooking, TaskState
from search.searcher import Result, Searcher
from tuning_logs.measurement import Measurement
from tuning_logs.record import RecordKey, TuningRecord

WALL = "wall_s"
"""Provenance field: the trial's share of its slot's wall-clock time, by which a resumed run knows what was spent."""


DISPROVED = 0.97  # a kernel faster than this share of its bound cannot be measuring noise
AHEAD = 8
"""Trials that an outlook looks ahead: a slot."""

STAGE, FINAL = "stage", "final"
"""Provenance field of a finalist's record: a correction, not a trial."""


def wall_s(record: TuningRecord) -> float:
    """Wall-clock seconds that getting ``record`` took; where nobody wrote them down, what compiling took."""
    return float(record.provenance.get(WALL, record.measurement.compile_s))


class Job:
    """A task, its searcher and what measuring it has brought.

    Args:
        bound_s: roofline bound in seconds.
        provenance: written into every record.
        renewal: makes the searcher anew with what other tasks have shown by then; None keeps the first.

    Attributes:
        results: everything the searcher was told.
    """

    def __init__(
        self,
        task: Task,
        program: str,
        key: RecordKey,
        searcher: Searcher,
        bound_s: float,
        seed: int,
        provenance: dict[str, str],
        renewal: Renewal | None = None,
    ) -> None:
        self.task = task
        self._program = program
        self._key = key
        self._searcher = searcher
        self._bound_s = bound_s
        self._seed = seed
        self._provenance = provenance
        self._latencies: list[float | None] = []
        self._spent: list[float] = []
        self._exhausted = False
        self._measured: dict[Config, float] = {}
        self._renewal = renewal
        self._outlook: Outlook | None = None
        self.results: list[Result] = []
        self.fresh = False

    @property
    def state(self) -> TaskState:
        """What an allocator may know."""
        return TaskState(
            self.task.key,
            self.task.template,
            self.task.weight,
            self.task.flop,
            self._credible_bound_s(),
            tuple(self._latencies),
            tuple(self._spent),
            self._exhausted,
            self._outlook,
        )

    def _credible_bound_s(self) -> float:
        """The bound; 0 (none) once a kernel was faster: its bytes then came from a nearer cache than was assumed."""
        fastest = min((latency for latency in self._latencies if latency is not None), default=self._bound_s)
        return self._bound_s if fastest >= DISPROVED * self._bound_s else 0.0

    @property
    def measured(self) -> dict[Config, float]:
        """Valid configs in the order they were first tried → latency in seconds by their newest measurement."""
        return dict(self._measured)

    def resume(self, records: Sequence[TuningRecord]) -> float:
        """Take over what the log knows; the wall-clock seconds it cost."""
        costs = [wall_s(record) for record in records]
        if records:
            self.results += [(record.config, record.measurement) for record in records]
            self._searcher.tell(self.results)
        for record, cost in zip(records, costs, strict=True):
            if record.provenance.get(STAGE) != FINAL:
                self._add((record.config, record.measurement), cost)
        return sum(costs)

    def ask(self, count: int) -> list[Config]:
        """Configs for the next slot; an empty answer closes the task."""
        renewed = self._renewal.searcher_after(len(self.results)) if self._renewal else None
        if renewed is not None:
            self._searcher = renewed
            if self.results:
                self._searcher.tell(self.results)
        configs = self._searcher.ask(count)
        self._exhausted = not configs
        return configs

    def candidate(self, config: Config) -> Candidate:
        """``config`` with the program it applies to."""
        return Candidate(self.task, self._program, config)

    def finalists(self, count: int, close: float) -> list[Config]:
        """Up to ``count`` configs within ``close`` times the best latency, fastest first."""
        ranked = sorted(self._measured, key=self._measured.__getitem__)
        return [config for config in ranked[:count] if self._measured[config] <= close * self._measured[ranked[0]]]

    def records(
        self,
        configs: Sequence[Config],
        measured: Sequence[Measurement],
        wall_s: float,
        stage: str = "",
        origins: Sequence[Origin] = (),
    ) -> list[TuningRecord]:
        """A slot, or finalists (``stage``), as log records; ``origins``: who measured, if not this machine."""
        provenance = {**self._provenance, WALL: f"{wall_s:.6f}"}
        if stage:
            provenance[STAGE] = stage
        when, here = time.time(), Origin(platform.node())
        return [
            TuningRecord(
                self._key,
                config,
                measurement,
                measurement.trace,
                when,
                origin.host,
                self._seed,
                {**provenance, **origin.provenance},
            )
            for config, measurement, origin in zip(configs, measured, origins or [here] * len(configs), strict=True)
        ]

    def tell(self, results: Sequence[Result], wall_s: float, foresee: bool = False) -> None:
        """Learn from the slot; ``foresee``: the state says what the searcher expects of the next."""
        for result in results:  # first, since learning takes a while: an interrupted run counts all that is in the log
            self._add(result, wall_s)
        if results:
            self.results += results
            self._searcher.tell(results)
            searcher = self._searcher
            self._outlook = searcher.outlook(AHEAD) if foresee and isinstance(searcher, Outlooking) else None
            self.fresh = True

    def _add(self, result: Result, cost_s: float) -> None:
        config, measurement = result
        if measurement.ok:
            self._measured[config] = measurement.latency_s
        self._latencies.append(measurement.latency_s if measurement.ok else None)
        self._spent.append(cost_s)
