"""Our allocation: the slot goes where it is expected to cut the model's latency most per second of tuning.

Notation: w = weight, b = best latency, g = ln gain of the next m trials, c = seconds of one trial of the task.

    value = w·b·(1 − e^−g) / (m·c)

DynaTune's idea in the unit that matters. Where it departs: no curve is fitted to the staircase; g comes from a record
model that starts from the distance to the roofline bound, is corrected by what it got wrong, and pooled over tasks of
a template (``gain.py``); a task costs what its own trials cost; and instead of UCB1, whose bonus needs rewards in
[0, 1], either the expectation itself (each slot lowers the next one's, so nothing is starved) or a draw (Thompson).
Every task is served once before any is served twice, most arithmetic first: untuned kernels are 5 to 100 times slower
than a first guess, and nothing known of the others comes near. The first slots of a task are short (``PACE``), as its
first trials bring most. Tasks within ``NEAR_BOUND`` of their bound get nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search.allocation import Allocator, TaskState, open_tasks, slot_trials
from search.gain import GainModel, latency_share
from search.slot_explanation import NEAR_BOUND, cost_s, describe_slot
from search.stopping import near_roofline

PACE = (2, 2, 4)  # a task's first trials bring most: 1.5 % each, 0.7, 0.3, 0.1 (``gain.py``)
ALIVE = 0.7  # tasks of which some config works, before anything was tried


class ExpectedCut(Allocator):
    """See the module's text.

    Args:
        slot: m once the slots of ``pace`` are over.
        rng: values are drawn (Thompson) instead of expected.
        own_word: as in ``GainModel``.
        pace: m of a task's first slots.
    """

    def __init__(
        self,
        slot: int = 8,
        rng: np.random.Generator | None = None,
        own_word: float = 0.0,
        pace: tuple[int, ...] = PACE,
    ) -> None:
        self.pace = pace
        self.foresees = own_word > 0.0
        self._slot = slot
        self._rng = rng
        self._gains = GainModel(own_word)

    def next(self, states: Sequence[TaskState]) -> str | None:
        """A task nobody tried, the most arithmetic first; then the one of the largest value; None if none is open.

        Tasks that are exhausted, or near their bounds, are not open.
        """
        self._gains.observe(states)
        tasks = [state for state in open_tasks(states) if not near_roofline(state, NEAR_BOUND)]
        if not tasks:
            return None
        fresh = [state for state in tasks if not state.trials]
        if fresh:  # untuned, the more arithmetic the worse
            return max(fresh, key=lambda state: (state.weight * state.flop, latency_share(state))).key
        return max(tasks, key=self._value).key

    def why(self, key: str, states: Sequence[TaskState]) -> str:
        """See ``Explains``."""
        state = next(state for state in states if state.key == key)
        return describe_slot(self._gains, key, states, self._ahead(state))

    def _ahead(self, state: TaskState) -> int:
        return slot_trials(self.pace, state.trials, self._slot)

    def _value(self, state: TaskState) -> float:
        """Expected seconds of model latency saved per second of tuning; a task of failures only counts as untuned."""
        ahead = self._ahead(state)
        slot_s = ahead * cost_s(state)
        share = latency_share(state)
        if state.best_s is None:
            return share * _chance_of_first(state.trials, ahead) / slot_s
        if self._rng is None:
            return share * -float(np.expm1(-self._gains.expected(state, ahead))) / slot_s
        drawn = float(self._gains.draws(state, ahead, 1, self._rng)[0])
        # most draws hold no record at all: a little of the expectation breaks their ties
        drawn += 0.01 * self._gains.expected(state, ahead)
        return share * -float(np.expm1(-drawn)) / slot_s


def _chance_of_first(failures: int, ahead: int) -> float:
    """Chance that one of ``ahead`` trials is the first valid one after ``failures`` failures, at least one.

    Either the task can work, with a share of valid configs that is uniform a priori (Laplace's rule), or none of its
    configs does; the evidence for the latter grows with every failure, so that dead ends are left for good.
    """
    alive = ALIVE / (failures + 1.0)
    alive /= alive + 1.0 - ALIVE
    return alive * (1.0 - (1.0 - 1.0 / (failures + 2.0)) ** ahead)
