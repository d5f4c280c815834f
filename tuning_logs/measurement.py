"""Measurement: what came of trying one config. Failure is a value here, never an infinite latency."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Literal, get_args

from schedules.vocabulary.errors import UsageError

ErrorKind = Literal["lower_error", "compile_error", "timeout", "worker_died", "wrong_result", "out_of_memory"]
ERROR_KINDS: tuple[str, ...] = get_args(ErrorKind)

LEAST_S, MOST_S = 1e-12, 1e7
"""Bounds of a latency in seconds: far less than a cycle, far more than any limit of a candidate."""


@dataclass(frozen=True)
class Measurement:
    """Either latencies or an error, never both, never neither.

    Attributes:
        latencies_s: (n,) seconds of every single timed run, in the order they were taken; empty on failure.
        error: the kind of failure, or None.
        message: the failure's text, for people.
        compile_s: seconds spent lowering and compiling.
        run_s: seconds spent running (warm-up, check and timing).
        code_hash: hash of the machine code; equal hashes are equal kernels. Empty if it was not built.
        trace: the schedule's trace on its way into ``TuningRecord.trace``; no part of what was measured.
    """

    latencies_s: tuple[float, ...] = ()
    error: ErrorKind | None = None
    message: str = ""
    compile_s: float = 0.0
    run_s: float = 0.0
    code_hash: str = ""
    trace: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if (self.error is None) == (not self.latencies_s):
            raise UsageError("a measurement has either latencies or an error")
        if self.error is not None and self.error not in ERROR_KINDS:
            raise UsageError(f"error kind {self.error!r} is unknown; it must be one of {ERROR_KINDS}")
        if not all(LEAST_S <= latency <= MOST_S for latency in self.latencies_s):  # false for NaN, too
            wrong = next(latency for latency in self.latencies_s if not LEAST_S <= latency <= MOST_S)
            raise UsageError(
                f"latencies must be finite and positive, from {LEAST_S:g} to {MOST_S:g} seconds, got {wrong!r}"
            )

    @property
    def ok(self) -> bool:
        """Whether it was timed."""
        return self.error is None

    @property
    def latency_s(self) -> float:
        """The median run in seconds: the one number by which configs are ranked.

        Raises:
            UsageError: on a failed measurement; ask ``ok`` first.
        """
        if not self.ok:
            raise UsageError(f"a failed measurement ({self.error}) has no latency")
        return statistics.median(self.latencies_s)
