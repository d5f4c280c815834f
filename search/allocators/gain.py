"""What more trials of a task may bring: a model of new records in its history, corrected by its own past errors.

Notation: n = trials so far, m = trials ahead, g = ln(best latency now / best latency after m more), a = tail scale.

The number of new records among m more trials is taken as Poisson with mean

    R(n, m) = K·(e^(−n/τ) − e^(−(n+m)/τ)) + L·ln((n + m) / n)

Each record gains an exponential amount of mean a, the mean excess of the top trials over the next one (extreme value
theory: any light tail). a is drawn towards what tasks as far from their roofline bound usually have: on the recorded
models the gain still to come correlates with ln(latency / bound) by 0.2 to 0.8 after two and four trials, and no more
after eight (Spearman; docs/lab: budget). Independent draws would find records for ever, ln((n + m) / n). A guided
search uses its task mostly up: on the recorded models trials 3 and 4 gained 3.0 %, 5 to 8 2.9, 9 to 16 2.4, 17 to 24
0.8 and 25 to 32 0.4.

The expectation is multiplied by a factor: realised over expected gains in the slots that were observed. Recent slots
count more. Each task's factor is drawn towards its template's, and that towards the factor of all tasks. The roofline
bound caps g.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.cost_model import Floats
from search.allocators.allocation import TaskState, open_tasks
from search.allocators.stopping import NEAR_BOUND, near_roofline

MOST_TOP = 8
"""Most trials from which the tail's scale is read: a slot. Heuristic, not measured."""

LEAST_SCALE = 0.003
"""Least tail scale in ln latency. Heuristic: timings of one kernel differ by as much."""

USUAL_SCALE = 0.1
"""Tail scale in ln latency of tasks without a roofline bound; weighs as much as ``MOST_TOP`` trials. Heuristic, not
measured."""

ROOM_SCALE = 0.13
"""The same per ln(best latency / roofline bound), where there is a bound: fitted to the four recorded models (table in
docs/lab: budget)."""

KAPPA, TAU, LASTING = 2.5, 3.5, 0.15
"""K in records, τ in trials and L in records of R: fitted to the gains above, on the four recorded models."""

FORGET = 0.8
"""Weight of a slot relative to the next one. Heuristic, not measured."""

FIRST_FACTOR = 0.65
"""Realised over expected gain before any slot was observed. Heuristic, not measured."""

TRUST = 0.3
"""Expected gain, in ln latency, that weighs as much as the factor of the larger pool. With 0.02 one slot without a gain
took a pool's factor from 0.65 to 0.02. On recorded models (code dad1b67, six seeds), where ``--until`` of 5, 3, 2 and
1 % stopped, the realised gain was then in the 80 % interval in 46, 25, 38 and 42 % of the runs; with 0.3 in 71, 79, 88
and 100 %. The allocator is as fast: 3.0 and 2.9 s to within 5 %, 6.4 and 6.6 s to within 2 % (five seeds)."""

OWN_TRUST = 1.0
"""The same for a single task. Heuristic: gains are so few that one slot without a gain says next to nothing."""

UNTUNED = 20.0
"""Latency of an untuned kernel in units of its roofline bound: untuned programs were one to two orders slower than
ONNX Runtime."""

RECENT = 16
"""Trials from which the cost of the next one is read: two slots. Heuristic, not measured."""


@dataclass
class _GainRatio:
    """Sums of realised and expected gains; older ones fade."""

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


def records(trials: int, ahead: int) -> float:
    """R(n, m)."""
    fading = KAPPA * float(np.exp(-trials / TAU) - np.exp(-(trials + ahead) / TAU))
    return fading + LASTING * float(np.log1p(ahead / trials))


def headroom(state: TaskState) -> float:
    """Largest g that the roofline bound allows; infinite without a bound or a valid trial."""
    if state.best_s is None or state.bound_s <= 0:
        return np.inf
    return max(float(np.log(state.best_s / state.bound_s)), 0.0)


def latency_share(state: TaskState) -> float:
    """Seconds of model latency that the task takes now; a task without a valid trial by its bound and ``UNTUNED``."""
    best_s = state.best_s
    return state.weight * (best_s if best_s is not None else UNTUNED * state.bound_s)


def trial_cost_s(state: TaskState) -> float:
    """Seconds that the next trial of a task with trials will take."""
    return max(float(np.mean(state.spent_s[-RECENT:])), 1e-6)


def _rate(state: TaskState) -> float:
    """Expected g per record, uncorrected."""
    room = headroom(state)
    return tail_scale(state.latencies_s, USUAL_SCALE if np.isinf(room) else max(ROOM_SCALE * room, LEAST_SCALE))


class GainModel:
    """Expected gains of tasks, learned from the slots it observes; call ``observe`` before every use."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float, float]] = {}  # trials, best latency, expected gain per record
        self._tasks: dict[str, _GainRatio] = defaultdict(_GainRatio)
        self._templates: dict[str, _GainRatio] = defaultdict(_GainRatio)
        self._all = _GainRatio()

    def observe(self, states: Sequence[TaskState]) -> None:
        """Compare what was expected of tasks that had trials since the last call with what they gained."""
        for state in states:
            if state.best_s is None:
                continue
            before = self._seen.get(state.key)
            if before is not None and state.trials > before[0]:
                trials, best_s, rate = before
                expected = rate * records(trials, state.trials - trials)
                realised = float(np.log(best_s / state.best_s))
                for ratio in (self._tasks[state.key], self._templates[state.template], self._all):
                    ratio.add(realised, expected)
            if before is None or state.trials != before[0]:
                self._seen[state.key] = (state.trials, state.best_s, _rate(state))

    def factor(self, state: TaskState) -> float:
        """Realised over expected gain so far."""
        pool = self._templates[state.template].factor(self._all.factor(FIRST_FACTOR))
        return self._tasks[state.key].factor(pool, OWN_TRUST)

    def expected(self, state: TaskState, ahead: int) -> float:
        """Mean of g after ``ahead`` more trials of a task with a valid one."""
        gain = self.factor(state) * _rate(state) * records(state.trials, ahead)
        room = headroom(state)
        return gain if np.isinf(room) else room * float(-np.expm1(-gain / room)) if room > 0 else 0.0

    def reduction_s(self, state: TaskState, ahead: int) -> float:
        """Seconds by which ``ahead`` more trials are expected to reduce the model's latency; 0 before a valid trial."""
        if state.best_s is None or state.exhausted or ahead < 1 or near_roofline(state, NEAR_BOUND):
            return 0.0
        return latency_share(state) * -float(np.expm1(-self.expected(state, ahead)))

    def remaining_s(self, states: Sequence[TaskState], left_s: float) -> float:
        """Seconds by which ``left_s`` more seconds of tuning are expected to reduce the model's latency.

        Tasks without a trial count nothing; the others get the time in equal parts.
        """
        begun = [state for state in open_tasks(states) if state.trials]
        each_s = left_s / max(1, len(begun))
        return sum(self.reduction_s(state, int(each_s / trial_cost_s(state))) for state in begun)

    def draws(self, state: TaskState, ahead: int, count: int, rng: np.random.Generator) -> Floats:
        """(count,) draws of g: records, their sizes, and the uncertainty of a tail scale read from few trials."""
        top = float(np.clip(state.trials // 4, 2, MOST_TOP))
        scale = _rate(state) * self.factor(state) * top / rng.gamma(top, size=count)
        found = rng.poisson(records(state.trials, ahead), size=count)
        sizes = rng.gamma(np.maximum(found, 1e-12)) * (found > 0)
        return np.minimum(scale * sizes, headroom(state))
