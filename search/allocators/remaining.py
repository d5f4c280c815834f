"""Remaining gain: how much lower the model's latency could be if tuning went on, as an upper bound.

Notation: w = weight, b = best latency in seconds, n = trials of a task, F = ``GAIN_FACTOR``.

    bound = F · Σ w·b / n   over the tasks that are not done

If trials are exchangeable, trial n + 1 is the best so far with probability 1 / (n + 1). So a task's gains fall about
as 1 / n, and one factor is left to choose. It is chosen by risk control (Learn then Test; Angelopoulos et al. 2021)
with the run as the unit: recorded runs stop by the bound, and a run is a miss if later trials brought more than asked.
``--until 1%`` stops by the bound. It replaced a model of records whose stops took longer at equal risk
(docs/lab/2026-11-28-posterior.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search.allocators.allocation import TaskState, latency_share
from search.allocators.stopping import Limits, why_task_done

GAIN_FACTOR = 2.7
"""F, in trials. The least for which at most 10 % of runs leave more than asked, with 90 % confidence
(Clopper–Pearson), at each of 5, 3, 2 and 1 %: ``python -m research.until`` on 77 recorded runs of two machines. Chosen
on the 61 older runs alone it is 2.40, which leaves more than 3 % in 1 of the other 16 runs. With 2.70, 1 of 48 runs of
a third machine does (``research/runs/live``)."""

LEVEL = 0.9
"""Share of runs that the bound holds for. Convention."""


@dataclass(frozen=True)
class Remaining:
    """Remaining gain.

    Attributes:
        model_s: the model's latency now as the weighted sum of its tasks, seconds.
        high_s: bound of its reduction by more tuning, seconds, which holds in ``LEVEL`` of runs.
    """

    model_s: float
    high_s: float

    @property
    def high_share(self) -> float:
        """The bound as a share of the model's latency now."""
        return self.high_s / self.model_s if self.model_s > 0 else 0.0

    def to_data(self) -> dict[str, float]:
        """Return the JSON of ``tune run --json``: the bound as a share of the model's latency now, and its level."""
        return {"high": self.high_share, "level": LEVEL}

    @property
    def text(self) -> str:
        """For people."""
        return f"remaining gain at most {self.high_share:.1%} (in {LEVEL:.0%} of runs)"


def together(parts: Sequence[Remaining | None]) -> Remaining | None:
    """Return the remaining gain of several models' latencies added up; None where one is unknown."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return Remaining(sum(part.model_s for part in known), sum(part.high_s for part in known))


def remaining_gain(states: Sequence[TaskState], limits: Limits) -> Remaining:
    """Return the remaining gain of a model in ``states``.

    A task without a trial may gain all of its untuned latency, as may one of fewer than ``GAIN_FACTOR`` trials.

    Args:
        limits: decide which tasks are done; those count no gain.
    """
    model_s = high_s = 0.0
    for state in states:
        share = latency_share(state)
        model_s += share
        if why_task_done(state, limits) is None:
            high_s += share * min(1.0, GAIN_FACTOR / max(state.trials, 1))
    return Remaining(model_s, high_s)


def why_enough(remaining: Remaining, until: float) -> str | None:
    """The reason to stop if the remaining gain is below ``until`` (a share), or None."""
    return f"{remaining.text}, below {until:.1%}" if remaining.high_share < until else None
