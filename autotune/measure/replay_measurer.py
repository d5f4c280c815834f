"""ReplayMeasurer: answers from recorded measurements and adds their recorded times to a virtual clock.

With it the whole loop runs without a device, and two strategies are compared on the same trace. Each is charged the
build and run times that were recorded for the candidates it chose, with as many recorded runs as its evaluator takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from autotune.measure.evaluator import Evaluator, taken
from autotune.measure.measurer import Candidate, Origin
from schedules.config import Config
from schedules.vocabulary.errors import MissingRecordError
from tuning_logs.measurement import Measurement
from tuning_logs.record import TuningRecord

Recorded = Mapping[tuple[str, Config], Measurement]
"""(task key, config) → its measurement."""


class VirtualClock:
    """Seconds that pass only when something is charged; call it to read it, as ``time.monotonic``."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Seconds since its creation."""
        return self.now_s

    def charge(self, seconds: float) -> None:
        """Let ``seconds`` pass."""
        self.now_s += seconds


def recorded(records: Iterable[TuningRecord]) -> dict[tuple[str, Config], Measurement]:
    """Measurements of log records, the newest of each config."""
    return {(record.key.task, record.config): record.measurement for record in records}


class ReplayMeasurer:
    """Measures by looking up.

    Args:
        measurements: what was recorded.
        evaluator: how many of a candidate's recorded runs to take; None takes all.
        clock: charged with builds and runs.
        builders: builds that ran at the same time; a batch's build time is divided by it.

    Attributes:
        compile_s, measure_s: seconds charged for building and for running so far.
        runs: single runs handed out so far.
    """

    origins: Sequence[Origin] = ()

    def __init__(
        self,
        measurements: Recorded,
        *,
        evaluator: Evaluator | None = None,
        clock: VirtualClock | None = None,
        builders: int = 1,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.compile_s = 0.0
        self.measure_s = 0.0
        self.runs = 0
        self._measurements = measurements
        self._evaluator = evaluator
        self._builders = builders
        self._known: dict[tuple[str, str], Measurement] = {}

    def measure(self, candidates: Sequence[Candidate], incumbent_s: float | None = None) -> list[Measurement]:
        """One measurement per candidate, in order.

        Raises:
            MissingRecordError: if one was never recorded.
        """
        found = [self._find(candidate) for candidate in candidates]
        compile_s = math.fsum(measurement.compile_s for measurement in found) / self._builders
        answers = [
            self._timed(candidate.task.key, measurement, incumbent_s)
            for candidate, measurement in zip(candidates, found, strict=True)
        ]
        run_s = math.fsum(answer.run_s for answer in answers)
        self.compile_s += compile_s
        self.measure_s += run_s
        self.runs += sum(len(answer.latencies_s) for answer in answers if answer.run_s)
        self.clock.charge(compile_s + run_s)
        return answers

    def lead(self, incumbent: Candidate, latency_s: float) -> None:
        """Nothing: recorded runs are handed out as they are."""

    def rank(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """The recorded measurements once more; nothing is charged, since no trace holds runs that were interleaved."""
        return [self._find(candidate) for candidate in candidates]

    def close(self) -> None:
        """Nothing to end."""

    def _find(self, candidate: Candidate) -> Measurement:
        measurement = self._measurements.get((candidate.task.key, candidate.config))
        if measurement is None:
            raise MissingRecordError(
                f"task {candidate.task.key} has no recorded measurement of {candidate.config.to_json()}; "
                f"replay only configs that the trace holds ({len(self._measurements)} in all)"
            )
        return measurement

    def _timed(self, task: str, measurement: Measurement, incumbent_s: float | None) -> Measurement:
        identical = (task, measurement.code_hash)
        if measurement.code_hash and identical in self._known:  # identical code is timed once, as on a machine
            return replace(self._known[identical], compile_s=measurement.compile_s, run_s=0.0)
        if measurement.ok and self._evaluator is not None:
            measurement = cut(measurement, self._evaluator, incumbent_s)
        self._known[identical] = measurement
        return measurement


def cut(measurement: Measurement, evaluator: Evaluator, incumbent_s: float | None) -> Measurement:
    """``measurement`` as ``evaluator`` would have left it: fewer runs, and their share of the time."""
    runs = measurement.latencies_s
    count = taken(evaluator, runs, incumbent_s)
    overhead = max(0.0, measurement.run_s - math.fsum(runs))
    return replace(measurement, latencies_s=runs[:count], run_s=overhead + math.fsum(runs[:count]))
