"""Timing kernels against each other on any device. A kernel is a function here: run once, return its seconds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from autotune.measure.evaluator import Evaluator, at_speed_of

Run = Callable[[], float]

LEAST_TO_LEAD = 4
"""Runs from which on a kernel's median may be what the others are raced against. Heuristic, not measured."""

WARM_RUNS = 3
"""Untimed runs before a kernel is timed: the first after a check was found 10 to 25 % slower, on small kernels the
second too."""

WARM_S = 0.5e-3
"""Seconds of untimed runs after which no more are needed: longer kernels are slower only once. Heuristic."""


def race(kernels: Sequence[Run], evaluator: Evaluator, incumbent_s: float | None) -> list[list[float]]:
    """Warm the kernels up and time them ``in_turn``; seconds."""
    for run in kernels:
        warm_up(run)
    return in_turn(kernels, evaluator, incumbent_s)


def in_turn(kernels: Sequence[Run], evaluator: Evaluator, incumbent_s: float | None) -> list[list[float]]:
    """Time the kernels in turn, forwards and backwards, until the evaluator has enough of every one; seconds.

    Where the rule races, the fastest so far is the incumbent; a kernel that the rule stops is not run again.
    """
    series: list[list[float]] = [[] for _ in kernels]
    order = list(range(len(kernels)))
    while True:
        medians = [statistics.median(runs) for runs in series if len(runs) >= LEAST_TO_LEAD]
        fastest = min([*medians, incumbent_s or math.inf]) if evaluator.races else math.inf
        rival = fastest if fastest < math.inf else incumbent_s
        wanted = [evaluator.more(runs, rival) for runs in series]
        if not any(wanted):
            return series
        for _ in range(max(wanted)):
            for index in order:
                if wanted[index] or not evaluator.races:
                    series[index].append(kernels[index]())
            order.reverse()


def duel(kernel: Run, control: Run, evaluator: Evaluator, incumbent_s: float) -> tuple[float, ...]:
    """Time one kernel in turn with the incumbent's, for as long as it is a contender.

    Returns:
        Seconds of its runs, as they would have been at the speed at which ``incumbent_s`` was measured.

    Args:
        incumbent_s: the control's recorded latency.
    """
    warm_up(kernel)
    runs: list[float] = []
    controls: list[float] = []
    current = incumbent_s
    while evaluator.more(runs, current):
        runs.append(kernel())
        if evaluator.more(runs, current):
            if not controls:
                warm_up(control)
            controls.append(control())
            current = statistics.median(controls)
    return at_speed_of(incumbent_s, runs, controls)


def warm_up(run: Run) -> None:
    """Untimed runs: ``WARM_RUNS``, or fewer where they take ``WARM_S``."""
    spent = 0.0
    for _ in range(WARM_RUNS):
        spent += run()
        if spent > WARM_S:
            return
