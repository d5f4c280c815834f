"""Stand-ins for a device and a clock: deterministic, in this process, and they tell what was asked of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from autotune.machine import host_target
from autotune.measure.base import Candidate
from schedules.errors import ScheduleError
from schedules.lower import load_program, lower
from tuning_logs.measurement import Measurement

Answer = Callable[[Candidate], Measurement]


def by_config(candidate: Candidate) -> Measurement:
    """A latency between 10 and 20 µs that depends on the config alone."""
    share = zlib.crc32(candidate.config.to_json().encode()) / 2**32
    return Measurement((1e-5 * (1 + share),), compile_s=0.01, run_s=0.001, code_hash=candidate.config.to_json())


class FakeMeasurer:
    """Answers by rule.

    Attributes:
        slots: every batch that was asked for.
    """

    def __init__(self, answer: Answer = by_config) -> None:
        self.answer = answer
        self.slots: list[list[Candidate]] = []
        self.compile_s = 0.0
        self.measure_s = 0.0
        self.closed = False

    def __enter__(self) -> FakeMeasurer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def measure(self, candidates: Sequence[Candidate], incumbent_s: float | None = None) -> list[Measurement]:
        """One answer per candidate."""
        self.slots.append(list(candidates))
        return [self.answer(candidate) for candidate in candidates]

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True

    @property
    def trials(self) -> int:
        """Candidates asked for."""
        return sum(map(len, self.slots))


class FakeClock:
    """Every look costs ``step`` seconds."""

    def __init__(self, step: float = 0.0) -> None:
        self.now = 100.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def if_it_lowers(candidate: Candidate) -> Measurement:
    """As ``by_config``, but what cannot be applied to the program fails as it would on a machine."""
    try:
        lower(load_program(candidate.program), candidate.config, host_target(1))
    except ScheduleError as error:
        return Measurement(error="lower_error", message=str(error))
    return by_config(candidate)
