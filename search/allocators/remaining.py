"""Expected remaining gain: how much lower the model's latency would be if tuning went on.

``--until 1%`` stops by this estimate: the sum over tasks of what more trials may bring, with an interval from draws.
The upper end of the interval decides: where the expectation did, more was often left than asked (docs/lab: budget).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from search.allocators.allocation import TaskState
from search.allocators.gain import GainModel, headroom, latency_share
from search.allocators.stopping import Limits, why_task_done

DRAWS = 400
"""Draws of the sum: the ends of an 80 % interval are then some 2 % of probability off, √(0.1·0.9 / 400)."""

_STRATA = np.array([NormalDist().inv_cdf((draw + 0.5) / DRAWS) for draw in range(DRAWS)])  # SciPy's takes 0.8 s to load
"""(DRAWS,) a normal's quantiles, in place of random numbers. A run looks after every slot and stops at the first
estimate that is low enough, which is one of the lowest if the upper end is off by 10 % each time: ShuffleNet stopped
below 3 % and stated 4.1 % for the same trials."""

LEVEL = 0.8
"""Probability of the interval. Convention."""

AHEAD = 128
"""Trials of every task that "went on" means. Convention."""

COMMON_SPREAD = 2.2
"""Standard deviation of ln(truth / expectation) that all tasks share, as the gain model itself may be wrong: what a run
still finds is nothing, or many times what its past says. Kept runs of 61 models, of 7 more and 40 replays bear it out;
it was 3.5 when lucky timings counted as gains (docs/lab: budget)."""


@dataclass(frozen=True)
class Remaining:
    """Expected remaining gain.

    Attributes:
        model_s: the model's latency now as the weighted sum of its tasks, seconds.
        gain_s: expected reduction of it.
        low_s, high_s: interval of the reduction, of probability ``LEVEL``; ``high_s`` is no less than ``gain_s``.
    """

    model_s: float
    gain_s: float
    low_s: float
    high_s: float

    @property
    def share(self) -> float:
        """Expected reduction as a share of the model's latency."""
        return self._share(self.gain_s)

    @property
    def high_share(self) -> float:
        """Upper end of the interval as a share of the model's latency."""
        return self._share(self.high_s)

    def _share(self, part_s: float) -> float:
        return part_s / self.model_s if self.model_s > 0 else 0.0

    def to_data(self) -> dict[str, float]:
        """As in ``tune run --json``: shares of the model's latency now."""
        return {"share": self.share, "low": self._share(self.low_s), "high": self.high_share, "level": LEVEL}

    @property
    def text(self) -> str:
        """For people."""
        low, high = 100.0 * self._share(self.low_s), 100.0 * self.high_share
        return f"expected remaining gain {self.share:.1%} ({low:.1f}–{high:.1f}% at {LEVEL:.0%})"


def together(parts: Sequence[Remaining | None]) -> Remaining | None:
    """The remaining gain of several models' latencies added up; None where one is unknown.

    Bounds are added too: the parts' expectations come from one gain model, so they are wrong in the same direction.
    """
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return Remaining(
        sum(part.model_s for part in known),
        sum(part.gain_s for part in known),
        sum(part.low_s for part in known),
        sum(part.high_s for part in known),
    )


class RemainingGain:
    """Estimates the remaining gain; it learns from the states after every slot how far its expectations were right.

    Args:
        limits: by which tasks are done: nothing more comes of those.
        ahead: trials of every task that "went on" means.
    """

    def __init__(self, rng: np.random.Generator, limits: Limits, ahead: int = AHEAD) -> None:
        self._seed = int(rng.integers(2**31))
        self._limits = limits
        self._ahead = ahead
        self._gains = GainModel()

    def observe(self, states: Sequence[TaskState]) -> None:
        """Take note of ``states`` after a slot."""
        self._gains.observe(states)

    def estimate(self, states: Sequence[TaskState]) -> Remaining:
        """What ``ahead`` more trials of every task that is not done would bring.

        A task without a valid config counts with an untuned latency and no gain: nothing is known of it.
        """
        rng = np.random.default_rng(self._seed)  # the same states have the same estimate, in a run asked again too
        cuts = np.zeros(DRAWS)
        model_s = 0.0
        off = np.exp(COMMON_SPREAD * _STRATA)
        for state in states:
            share = latency_share(state)
            model_s += share
            if state.best_s is None or why_task_done(state, self._limits):
                continue
            gains = np.minimum(off * self._gains.draws(state, self._ahead, DRAWS, rng), headroom(state))
            cuts += share * -np.expm1(-gains)
        low, high = np.quantile(cuts, [0.5 - LEVEL / 2.0, 0.5 + LEVEL / 2.0])
        expected = float(cuts.mean())
        # A few draws of many times the others can hold most of the expectation, which is then beyond the quantile.
        return Remaining(model_s, expected, float(low), max(float(high), expected))


def why_enough(remaining: Remaining, until: float) -> str | None:
    """The reason to stop if even the upper end of the remaining gain is below ``until`` (a share), or None."""
    return f"{remaining.text}, its upper end below {until:.1%}" if remaining.high_share < until else None
