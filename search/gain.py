"""What more trials of a task may bring: a record model of its history, corrected by what it got wrong so far.

Notation: n = trials so far, m = trials ahead, g = ln(best latency now / best latency after m more), a = tail scale.

The number of new records among m more trials is taken as Poisson with mean

    R(n, m) = K·(e^(−n/τ) − e^(−(n+m)/τ)) + L·ln((n + m) / n)

and each record gains an exponential amount of mean a, the mean excess of the top trials over the next (extreme value
theory: any light tail), drawn towards what tasks as far from their roofline bound usually have: on the recorded models
the gain still to come correlates with ln(latency / bound) by 0.2 to 0.8 after two trials and four, and no more after
eight (Spearman; docs/dynatune.md). Independent draws would find records for ever, ln((n + m) / n); a guided search uses
its task mostly up: on the recorded models trials 3 and 4 gained 3.0 %, 5 to 8 2.9, 9 to 16 2.4, 17 to 24 0.8 and 25 to
32 0.4, where K, τ and L come from.

The expectation is multiplied by a factor: realised over expected gains in the slots that were watched, recent ones
counting more, each task drawn towards its template and that towards all tasks. The roofline bound caps g.

A searcher's own ``Outlook`` can stand in for a, in part or whole. It is right on the mean, but ranks tasks little
better than chance (Spearman 0.1 to 0.3), and what it says of single tasks cost time on every recorded model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.cost_model import Floats
from search.allocation import TaskState

MOST_TOP = 8  # trials from which the tail's scale is read
LEAST_SCALE = 0.003  # no tail is thinner: timings differ by that much
USUAL_SCALE = 0.1  # of tasks in general; weighs as much as MOST_TOP trials
ROOM_SCALE = 0.13  # the same per ln(best latency / roofline bound), where there is a bound
FORGET = 0.8  # weight of a slot relative to the next one
KAPPA, TAU = 2.5, 3.5  # records of a whole search, and the trials over which they thin out; see R above
LASTING = 0.15  # L
FIRST_FACTOR = 0.65  # before any slot was watched
TRUST = 0.02  # expected gain, in ln latency, that weighs as much as the opinion of the larger pool
OWN_TRUST = 1.0  # the same for a single task: gains are so few that a slot without one says next to nothing
UNTUNED = 20.0  # an untuned kernel takes so many times its roofline bound (one to two orders, as measured)


@dataclass
class _Ledger:
    """Realised and expected gains, older ones fading."""

    realised: float = 0.0
    expected: float = 0.0

    def add(self, realised: float, expected: float) -> None:
        self.realised = FORGET * self.realised + realised
        self.expected = FORGET * self.expected + expected

    def factor(self, pool: float, trust: float = TRUST) -> float:
        """Realised over expected, drawn towards ``pool``."""
        return (self.realised + trust * pool) / (self.expected + trust)


def tail_scale(latencies_s: Sequence[float | None], usual: float = USUAL_SCALE) -> float:
    """Mean excess of the top trials' ln speed over the next one, drawn towards the usual one, a."""
    scores = np.sort([-np.log(latency) for latency in latencies_s if latency is not None])[::-1]
    if len(scores) < 3:
        return usual
    top = int(np.clip(len(scores) // 4, 2, MOST_TOP))
    own = max(float(np.mean(scores[:top] - scores[top])), LEAST_SCALE)
    return (top * own + MOST_TOP * usual) / (top + MOST_TOP)


def records(trials: int, ahead: int, tau: float = TAU) -> float:
    """R(n, m)."""
    fading = KAPPA * float(np.exp(-trials / tau) - np.exp(-(trials + ahead) / tau))
    return fading + LASTING * float(np.log1p(ahead / trials))


def headroom(state: TaskState) -> float:
    """Largest g that the roofline bound allows; infinite without a bound or a valid trial."""
    if state.best_s is None or state.bound_s <= 0:
        return np.inf
    return max(float(np.log(state.best_s / state.bound_s)), 0.0)


class GainModel:
    """Expected gains of tasks, learning from the slots it is shown. ``observe`` before every use.

    Args:
        own_word: how much the searcher's own outlook decides, from 0 (nothing) to 1.
        tau: τ.
    """

    def __init__(self, own_word: float = 0.0, tau: float = TAU) -> None:
        self._own_word = own_word
        self._tau = tau
        self._seen: dict[str, tuple[int, float, float]] = {}  # trials, best, expected gain per record
        self._tasks: dict[str, _Ledger] = defaultdict(_Ledger)
        self._templates: dict[str, _Ledger] = defaultdict(_Ledger)
        self._all = _Ledger()

    def observe(self, states: Sequence[TaskState]) -> None:
        """Compare what was expected of tasks that had trials since the last call with what they gained."""
        for state in states:
            if state.best_s is None:
                continue
            before = self._seen.get(state.key)
            if before is not None and state.trials > before[0]:
                trials, best_s, rate = before
                expected = rate * self._records(trials, state.trials - trials)
                realised = float(np.log(best_s / state.best_s))
                for ledger in (self._tasks[state.key], self._templates[state.template], self._all):
                    ledger.add(realised, expected)
            if before is None or state.trials != before[0]:
                self._seen[state.key] = (state.trials, state.best_s, self._rate(state))

    def _rate(self, state: TaskState) -> float:
        """Expected g per record, uncorrected."""
        room = headroom(state)
        usual = tail_scale(state.latencies_s, USUAL_SCALE if np.isinf(room) else max(ROOM_SCALE * room, LEAST_SCALE))
        if state.outlook is None or not self._own_word:
            return usual
        own = float(np.mean(state.outlook.gains)) / self._records(state.trials, state.outlook.trials)
        blended: float = usual ** (1.0 - self._own_word) * own**self._own_word
        return blended

    def _records(self, trials: int, ahead: int) -> float:
        return records(trials, ahead, self._tau)

    def factor(self, state: TaskState) -> float:
        """By how much the expectation was wrong so far."""
        pool = self._templates[state.template].factor(self._all.factor(FIRST_FACTOR))
        return self._tasks[state.key].factor(pool, OWN_TRUST)

    def expected(self, state: TaskState, ahead: int) -> float:
        """Mean of g after ``ahead`` more trials of a task with a valid one."""
        gain = self.factor(state) * self._rate(state) * self._records(state.trials, ahead)
        room = headroom(state)
        return gain if np.isinf(room) else room * float(-np.expm1(-gain / room)) if room > 0 else 0.0

    def draws(self, state: TaskState, ahead: int, count: int, rng: np.random.Generator) -> Floats:
        """(count,) draws of g: records, their sizes, and doubt about the tail's scale from few trials."""
        top = float(np.clip(state.trials // 4, 2, MOST_TOP))
        scale = self._rate(state) * self.factor(state) * top / rng.gamma(top, size=count)
        found = rng.poisson(self._records(state.trials, ahead), size=count)
        sizes = rng.gamma(np.maximum(found, 1e-12)) * (found > 0)
        return np.minimum(scale * sizes, headroom(state))


def latency_share(state: TaskState) -> float:
    """Seconds of model latency that the task is responsible for now; an untuned one by its bound."""
    best_s = state.best_s
    return state.weight * (best_s if best_s is not None else UNTUNED * state.bound_s)
