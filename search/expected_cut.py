"""Our allocation: the slot goes where it is expected to cut the model's latency most per second of tuning.

Notation: w = weight, b = best latency, g = ln gain of the next m trials, c = seconds of one trial of the task.

    value = w·b·(1 − e^−g) / (m·c)

DynaTune's idea in the unit that matters. Where it departs: no curve is fitted to the staircase; g comes from a record
model that is corrected by what it got wrong and pooled over tasks of a template (``gain.py``); a task costs what its
own trials cost; the roofline bound caps hope; and instead of UCB1, whose bonus needs rewards in [0, 1], either the
expectation itself (each slot lowers the next one's, so nothing is starved) or a draw (Thompson). Every task is served
once before any is served twice, most arithmetic first: untuned kernels are 5 to 100 times slower than a first guess,
and nothing known of the others comes near. Tasks within ``NEAR_BOUND`` of their bound get nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search.allocation import Allocator, TaskState, open_tasks
from search.forecast import NEAR_BOUND, cost_s, describe_slot
from search.gain import GainModel, latency_share
from search.stopping import near_roofline

DEFAULT_COST_S = 0.1
ALIVE = 0.7  # tasks of which some config works, before anything was tried


class ExpectedCut(Allocator):
    """See the module's text; ``slot`` is m, ``own_word`` as in ``GainModel``, and with ``rng`` values are drawn."""

    def __init__(self, slot: int = 8, rng: np.random.Generator | None = None, own_word: float = 0.0) -> None:
        self._slot = slot
        self._rng = rng
        self._gains = GainModel(own_word)

    def next(self, states: Sequence[TaskState]) -> str | None:
        """The open task of the largest value; None where all are exhausted or near their bounds."""
        self._gains.observe(states)
        tasks = [state for state in open_tasks(states) if not near_roofline(state, NEAR_BOUND)]
        if not tasks:
            return None
        known = [state for state in states if state.trials]
        usual_s = float(np.mean([cost_s(state) for state in known])) if known else DEFAULT_COST_S
        fresh = [state for state in tasks if not state.trials]
        if fresh:  # untuned, the more arithmetic the worse
            return max(fresh, key=lambda state: (state.weight * state.flop, latency_share(state))).key
        return max(tasks, key=lambda state: self._value(state, usual_s)).key

    def why(self, key: str, states: Sequence[TaskState]) -> str:
        """See ``Explains``."""
        return describe_slot(self._gains, key, states, self._slot)

    def _value(self, state: TaskState, usual_s: float) -> float:
        """Expected seconds of model latency saved per second of tuning; a task nobody tried counts as untuned."""
        slot_s = self._slot * (cost_s(state) if state.trials else usual_s)
        share = latency_share(state)
        if state.best_s is None:
            return share * _chance_of_first(state.trials, self._slot) / slot_s
        if self._rng is None:
            return share * -float(np.expm1(-self._gains.expected(state, self._slot))) / slot_s
        drawn = float(self._gains.draws(state, self._slot, 1, self._rng)[0])
        # most draws hold no record at all: a little of the expectation breaks their ties
        drawn += 0.01 * self._gains.expected(state, self._slot)
        return share * -float(np.expm1(-drawn)) / slot_s


def _chance_of_first(failures: int, ahead: int) -> float:
    """Chance that one of ``ahead`` trials is the first valid one after ``failures`` failures.

    Either the task can work, with a share of valid configs that is uniform a priori (Laplace's rule), or none of its
    configs does; the evidence for the latter grows with every failure, so that dead ends are left for good.
    """
    alive = ALIVE / (failures + 1.0)
    alive /= alive + 1.0 - ALIVE
    return alive * (1.0 - (1.0 - 1.0 / (failures + 2.0)) ** ahead) if failures else 1.0
