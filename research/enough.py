"""How many runs a recording takes; a module of its own because the timing worker imports it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Enough:
    """Runs of one pass: an evaluator that looks at nothing but the count and the time."""

    runs: int
    cap_s: float
    races: bool = False

    def more(self, runs_s: Sequence[float], incumbent_s: float | None = None) -> int:
        """One more, or nothing."""
        count = len(runs_s)
        return int(count < self.runs and (count < 2 or math.fsum(runs_s) < self.cap_s))
