"""How a session that serves a model tunes it at the same time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from schedules.vocabulary.errors import UsageError


@dataclass(frozen=True)
class Adapt:
    """How a session that serves a model tunes it at the same time.

    Attributes:
        cpu_share: share of this process's CPUs that the tuner may use on average, above 0 and at most 1.
        until: tuning of a size ends when the remaining gain is below this share of the latency: ``"3%"`` or 0.03.

    Raises:
        UsageError: if a value is outside its range.
    """

    cpu_share: float = 0.25
    until: float | str = "3%"

    def __post_init__(self) -> None:
        if not _is_share(self.cpu_share) or not 0.0 < self.cpu_share <= 1.0:
            raise UsageError(f"cpu_share is {self.cpu_share!r}; it must be above 0 and at most 1")
        if not 0.0 <= self.remaining < 1.0:
            raise UsageError(f"until is {self.until!r}; it must be a share below 1, such as '3%' or 0.03")

    @property
    def remaining(self) -> float:
        """``until`` as a number; NaN if it is none."""
        text = self.until
        if _is_share(text):
            return float(text)
        try:
            return float(text[:-1]) / 100 if isinstance(text, str) and text.endswith("%") else float(text)
        except (TypeError, ValueError):
            return math.nan


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
