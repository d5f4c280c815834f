"""DynaTune (Zhang et al., ICLR 2021): a multi-armed bandit over tasks with beliefs about their curves.

Notation: a = task, t = slots dealt so far, N_a = slots of a, Q_a = predicted gain of a's next slot.

    a_t = argmax_a Q_a + C·√(2 ln t / N_a)          after every task has a valid config

Two variants:

- the paper's: Q_a is the predicted cut of the model's latency, here as a share of it so that rewards lie in [0, 1] as
UCB1
  asks, from the ensemble of curves. The value of C is not in our sources; 0.02 (2 % of the model's latency) is ours.
- the released code's (``task_predictor.py``, ``task_selector.py``): Q_a is the predicted *absolute* GFLOPS of the
task one slot
  ahead, from the log-power curve alone, and the bonus is √(2 ln t / N_a): it prefers tasks that are fast already.

The paper's slots are seconds; here a slot is a number of trials, and its length is the session's business.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from costmodels.curve import CurveEnsemble, best_so_far
from costmodels.curve_functions import BY_NAME, CURVES, Curve
from search.allocation import Allocator, TaskState, open_tasks
from search.gain import latency_share

PAPER_C = 0.02


class _Bandit(Allocator):
    """Warm-up, beliefs that are refitted when a task has new trials, and the upper confidence bound."""

    def __init__(self, rng: np.random.Generator, slot: int, curves: Sequence[Curve], exploration: float) -> None:
        self._rng = rng
        self._slot = slot
        self._curves = curves
        self._exploration = exploration
        self._beliefs: dict[str, tuple[int, CurveEnsemble]] = {}

    @abstractmethod
    def reward(self, state: TaskState, speed: float, model_s: float) -> float:
        """Q of a task predicted to run at ``speed`` (1/s) after its next slot; ``model_s``: the model's latency."""

    def next(self, states: Sequence[TaskState]) -> str | None:
        """The first open task without a valid config, else the largest upper confidence bound."""
        tasks = open_tasks(states)
        if not tasks:
            return None
        cold = [state for state in tasks if state.best_s is None]
        if cold:
            return cold[0].key
        dealt = max(sum(state.trials for state in states) / self._slot, 1.0)
        model_s = sum(latency_share(state) for state in states)

        def bound(state: TaskState) -> float:
            slots = max(state.trials / self._slot, 1.0)
            bonus = self._exploration * float(np.sqrt(2.0 * np.log(dealt) / slots))
            return self.reward(state, self._predicted(state), model_s) + bonus

        return max(tasks, key=bound).key

    def why(self, key: str, states: Sequence[TaskState]) -> str:
        """See ``Explains``."""
        state = next(state for state in states if state.key == key)
        if state.best_s is None:
            return "every task gets a valid config first"
        speedup = self._predicted(state) * state.best_s
        return f"the largest upper bound: its curve says {speedup - 1.0:.1%} faster one slot ahead"

    def _predicted(self, state: TaskState) -> float:
        """Expected best speed (1/s) one slot ahead."""
        trials, belief = self._beliefs.get(state.key, (0, None))
        if belief is None:
            belief = CurveEnsemble(int(self._rng.integers(2**31)), self._curves)
        if trials != state.trials:
            belief.fit(*best_so_far(state.latencies_s))
            self._beliefs[state.key] = (state.trials, belief)
        return belief.predict(state.trials + self._slot)[0]


class DynaTune(_Bandit):
    """The paper's rule."""

    def __init__(self, rng: np.random.Generator, slot: int = 8) -> None:
        super().__init__(rng, slot, CURVES, PAPER_C)

    def reward(self, state: TaskState, speed: float, model_s: float) -> float:
        """Predicted cut as a share of the model's latency."""
        best_s = state.best_s or 0.0
        return state.weight * (best_s - 1.0 / speed) / model_s


class DynaTuneReleased(_Bandit):
    """The released code's rule."""

    def __init__(self, rng: np.random.Generator, slot: int = 8) -> None:
        super().__init__(rng, slot, (BY_NAME["log_power"],), 1.0)

    def reward(self, state: TaskState, speed: float, model_s: float) -> float:
        """Predicted GFLOPS."""
        del model_s
        return state.flop * speed / 1e9
