"""The default allocation: the slot goes to the task with the largest latency share per second of tuning so far.

Notation: w = weight, b = best latency in seconds, s = seconds spent on the task.

    value = w·b / s

DynaTune ranks tasks by a predicted curve. Departures:

- Nothing is predicted. Posteriors of the remaining gain (curves, records, a hierarchical regression) rank tasks no
  better than their latency shares do, and their slots take as long (docs/lab/2026-11-28-posterior.md).
- The unit is latency per second of tuning, so a task pays for its own trials.
- Every task is served once before any is served twice, most arithmetic first: an untuned kernel is 5 to 100 times
  slower than a template's first initial config, more than any other slot could gain.

The first slots of a task are short (``PACE``). Tasks within ``NEAR_BOUND`` of their bound get no slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from search.allocators.allocation import Allocator, TaskState, latency_share, open_tasks, state_of
from search.allocators.stopping import near_roofline

PACE = (1, 3, 4)
"""Trials of a task's first slots: its first trials bring most. One is enough of what is known to be good, and every
task has to have one. On ten recorded models slots of 1, 3 and 4, of 1, 2 and 5, and of 1, 1, 2 and 4 were level; on
seeds that did not choose, 2, 2 and 4 took 1.47, 1.30 and 1.10 times as long to within 5, 2 and 1 % (docs/lab: budget).
"""

LEAST_S = 1e-6
"""Least seconds that a task's trials count as, so that recorded trials without a cost divide."""


class SharePerSecond(Allocator):
    """The largest share of the model's latency per second of tuning so far."""

    pace = PACE

    def next(self, states: Sequence[TaskState]) -> str | None:
        """An untried task, the most arithmetic first; then the one of the largest value; None if none is open.

        Tasks that are exhausted, or near their bounds, are not open.
        """
        tasks = [state for state in open_tasks(states) if not near_roofline(state)]
        if not tasks:
            return None
        fresh = [state for state in tasks if not state.trials]
        if fresh:
            return max(fresh, key=lambda state: (state.weight * state.flop, latency_share(state))).key
        return max(tasks, key=_value).key

    def why(self, key: str, states: Sequence[TaskState]) -> str:
        """The share and the seconds, as in ``Allocator.why``."""
        state = state_of(key, states)
        share = latency_share(state) / max(sum(map(latency_share, states)), 1e-12)
        if state.best_s is None:
            tried = f"none of {state.trials} trials worked so far" if state.trials else "no config was tried"
            return f"{tried}, and untuned it would take some {share:.0%} of the model's time"
        return f"it takes {share:.0%} of the model's time and had {sum(state.spent_s):.1f} s of tuning"


def _value(state: TaskState) -> float:
    return latency_share(state) / max(sum(state.spent_s), LEAST_S)
