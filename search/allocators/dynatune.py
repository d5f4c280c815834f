"""DynaTune (Zhang et al., ICLR 2021): a multi-armed bandit over tasks that predicts their curves.

Notation: a = task, t = slots so far, N_a = slots of a, Q_a = predicted gain of a's next slot.

    a_t = argmax_a Q_a + C·√(2 ln t / N_a)          after every task has a valid config

Two variants:

- the paper's: Q_a is the predicted reduction of the model's latency from the ensemble of curves, here as a share of
  that latency, since UCB1 needs rewards in [0, 1];
- the released code's (``task_predictor.py``, ``task_selector.py``): Q_a is the predicted *absolute* GFLOPS one slot
  ahead, from the log-power curve alone, and C = 1. It prefers tasks that are fast already.

The paper's slots are seconds. Here a slot is ``SLOT`` trials.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodels.curve import CurveEnsemble, best_so_far
from costmodels.curve_functions import CURVES
from search.allocators.allocation import SLOT, Allocator, TaskState, latency_share, open_tasks, state_of

PAPER_C = 0.02
"""C as a share of the model's latency. Heuristic, not measured: our sources of the paper do not give its value."""

RELEASED_C = 1.0
"""C of the released code, in GFLOPS."""


class DynaTune(Allocator):
    """Upper confidence bound over predicted curves; ``released``: the code's variant."""

    def __init__(self, rng: np.random.Generator, released: bool = False) -> None:
        self._rng = rng
        self._released = released
        self._curves = [CURVES["log_power"]] if released else list(CURVES.values())
        self._exploration = RELEASED_C if released else PAPER_C
        self._ensembles: dict[str, tuple[int, CurveEnsemble]] = {}

    def next(self, states: Sequence[TaskState]) -> str | None:
        """The first open task without a valid config, else the largest upper confidence bound."""
        tasks = open_tasks(states)
        if not tasks:
            return None
        cold = [state for state in tasks if state.best_s is None]
        if cold:
            return cold[0].key
        total = max(sum(state.trials for state in states) / SLOT, 1.0)
        model_s = sum(latency_share(state) for state in states)

        def bound(state: TaskState) -> float:
            slots = max(state.trials / SLOT, 1.0)
            bonus = self._exploration * float(np.sqrt(2.0 * np.log(total) / slots))
            return self._reward(state, model_s) + bonus

        return max(tasks, key=bound).key

    def why(self, key: str, states: Sequence[TaskState]) -> str:
        """The predicted speedup, as in ``Allocator.why``."""
        state = state_of(key, states)
        if state.best_s is None:
            return "every task gets a valid config first"
        speedup = self._predicted(state) * state.best_s
        return f"the largest upper bound: its curve predicts {speedup - 1.0:.1%} faster one slot ahead"

    def _reward(self, state: TaskState, model_s: float) -> float:
        """Q: a share of the model's latency ``model_s``, or GFLOPS in the released variant."""
        speed = self._predicted(state)
        if self._released:
            return state.flop * speed / 1e9
        return state.weight * ((state.best_s or 0.0) - 1.0 / speed) / model_s

    def _predicted(self, state: TaskState) -> float:
        """Expected best speed (1/s) one slot ahead; the curves are fitted anew when the task has new trials."""
        trials, ensemble = self._ensembles.get(state.key, (0, None))
        if ensemble is None:
            ensemble = CurveEnsemble(int(self._rng.integers(2**31)), self._curves)
        if trials != state.trials:
            ensemble.fit(*best_so_far(state.latencies_s))
            self._ensembles[state.key] = (state.trials, ensemble)
        return ensemble.predict(state.trials + SLOT)[0]
