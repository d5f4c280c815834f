"""A measurement is timed or failed, and never both."""

from __future__ import annotations

import math

import pytest

from schedules.vocabulary.errors import UsageError
from tuning_logs.measurement import ERROR_KINDS, Measurement


def test_the_latency_is_the_median() -> None:
    assert Measurement((3.0, 1.0, 2.0)).latency_s == 2.0


@pytest.mark.parametrize("kind", ERROR_KINDS)
def test_a_failure_has_no_latency(kind: str) -> None:
    failed = Measurement(error=kind)  # type: ignore[arg-type]
    assert not failed.ok
    with pytest.raises(UsageError, match=kind):
        _ = failed.latency_s


@pytest.mark.parametrize(
    ("latencies", "error", "message"),
    [
        ((), None, "either latencies or an error"),
        ((1.0,), "timeout", "either latencies or an error"),
        ((), "boredom", "'boredom' is unknown"),
        ((0.0,), None, "finite and positive"),
        ((1.0, math.inf), None, "finite and positive"),
    ],
)
def test_nonsense_is_refused(latencies: tuple[float, ...], error: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Measurement(latencies, error)  # type: ignore[arg-type]
