"""How long a whole model takes: alone, in turn with others, and while another one is at work.

A *run* is a function that runs a model once and returns the seconds that this took.
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from autotune.backends.executor import Span
from autotune.graph.lanes import Lane
from autotune.graph.measured_costs import occupied
from autotune.runtime.session import InferenceSession

Run = Callable[[], float]

TIMED_S = 0.6
"""Seconds for which one model is timed. Heuristic, not measured."""

LEAST_RUNS = 5
"""Runs of a model of which one takes long."""

MOST_S = 12.0
"""Seconds of runs in turn and of their pauses, after which ``LEAST_RUNS`` are enough: of an untuned model one takes
seconds, and all runs of a decision were 143 s for a budget of 2. Heuristic, not measured."""

BEATEN = 4.0
"""Times that a model's first run, with cold caches, takes another's median where it is slower beyond doubt. Heuristic,
not measured."""

WARM_SHARE = 0.2
"""Share of the runs, the first ones, that do not count: caches and clock rates settle in them. Heuristic."""

RACE_S = 1.5
"""Seconds for which several models are timed in turn. Heuristic, not measured."""

RACE_RUNS = 15
"""Runs of each of several models, at least; also of each subgraph whose cost is measured."""

DUEL_S, DUEL_RUNS = 2.0, 40
"""The same for two models between which a decision is made. Heuristic, not measured."""

LOST_RUNS = 12
"""First rounds of such two after which the second has lost if it was the slower one in each: a chance of 1 in 4096."""

WARM_RUNS = 3
"""Runs before those."""

PASSES = 9
"""Profiled inferences, of which the median counts; fewer where they take ``MOST_S``. Heuristic, not measured."""

QUIET_S = 3e-3
"""Seconds between runs of different models. After a run a model's threads spin for 2 ms, on the same cores."""


def session_run(session: InferenceSession, feed: Mapping[str, Any]) -> Run:
    """A run of ``session`` on ``feed``."""

    def run() -> float:
        began = time.perf_counter()
        session.run(None, feed)
        return time.perf_counter() - began

    return run


def median_s(run: Run, seconds: float = TIMED_S, beaten_s: float = math.inf) -> float:
    """Median seconds of a run, over about ``seconds`` of them after a first one; the first's if that takes ``BEATEN``
    times ``beaten_s``: no more are needed to know which is faster, and of untuned decoders one takes 12 s.
    """
    times: list[float] = []
    if (first := run()) > BEATEN * beaten_s:
        return first
    deadline = time.perf_counter() + seconds
    while len(times) < LEAST_RUNS or time.perf_counter() < deadline:
        times.append(run())
    return statistics.median(times[int(WARM_SHARE * len(times)) :])


def race(runs: Sequence[Run], seconds: float = RACE_S) -> list[float]:
    """Median seconds of each of ``runs``, made in turn for about ``seconds`` so that drift meets all of them alike."""
    return [statistics.median(times) for times in _in_turn(runs, seconds, RACE_RUNS)]


def ratios(one: Run, other: Run) -> tuple[float, float, float]:
    """Return how many times as long ``one`` takes as ``other``, made in turn: the median within its interval.

    It is over early where ``other`` is the slower one in each of the first ``LOST_RUNS`` rounds.
    """

    def is_lost(times: Sequence[Sequence[float]]) -> bool:
        return len(times[0]) == LOST_RUNS and all(a < b for a, b in zip(*times, strict=True))

    return interval([a / b for a, b in zip(*_in_turn([one, other], DUEL_S, DUEL_RUNS, is_lost), strict=True)])


def is_faster(one: Run, other: Run) -> bool:
    """Whether ``one`` is faster than ``other`` beyond doubt, by the medians and by the shortest of runs in turn.

    Other processes hold up a model on several threads longer than a model on one thread, in most of their runs. The
    shortest run of each is the one that they disturbed least.
    """
    times, others = _in_turn([one, other], DUEL_S, DUEL_RUNS)
    return min(times) < min(others) and interval([a / b for a, b in zip(times, others, strict=True)])[2] < 1.0


def apart(run: Run) -> list[float]:
    """Return the seconds of ``DUEL_RUNS`` runs: of models that cannot be open at the same time, so not in turn."""
    return [run() for _ in range(WARM_RUNS + DUEL_RUNS)][WARM_RUNS:]


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The median of ``values`` between the ends of its 95 % interval, which are order statistics: values are not taken
    to be of any distribution.
    """
    ordered = sorted(values)
    # Of a binomial distribution, as by the normal one.
    beyond = max(int(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))), 0)
    return ordered[beyond], statistics.median(ordered), ordered[-1 - beyond]


def _in_turn(
    runs: Sequence[Run], seconds: float, least: int, is_over: Callable[[list[list[float]]], bool] = lambda _: False
) -> list[list[float]]:
    """Seconds of each of ``runs`` in every round, for about ``seconds`` and ``least`` rounds; fewer after ``MOST_S``.

    Args:
        is_over: whether the rounds so far are enough.
    """
    times: list[list[float]] = [[] for _ in runs]
    for run in runs:
        for _ in range(WARM_RUNS):
            run()
    began, spent, order = time.perf_counter(), 0.0, list(range(len(runs)))
    while (spent < seconds or len(times[0]) < (least if spent < MOST_S else LEAST_RUNS)) and not is_over(times):
        for index in order:
            time.sleep(QUIET_S)
            runs[index]()  # fills the caches again, which the other models have emptied
            times[index].append(runs[index]())
        order.reverse()
        spent = time.perf_counter() - began  # with the pauses: of models of 30 µs they are nearly all of it
    return times


def kernel_times(profile: Callable[[], Sequence[tuple[str, float]]]) -> tuple[tuple[str, float], ...]:
    """Symbol and median seconds of every kernel call of an inference, in order, of several runs of ``profile``."""
    passes = [profile()]
    deadline = time.perf_counter() + MOST_S
    while len(passes) < PASSES and time.perf_counter() < deadline:
        passes.append(profile())
    return tuple(
        (calls[0][0], statistics.median(seconds for _, seconds in calls)) for calls in zip(*passes, strict=True)
    )


def timelines(timeline: Callable[[], list[Span]]) -> list[list[Span]]:
    """Return when the groups of calls ran, in each of ``RACE_RUNS`` runs after ``WARM_RUNS`` that do not count."""
    return [timeline() for _ in range(WARM_RUNS + RACE_RUNS)][WARM_RUNS:]


def median_timeline(timeline: Callable[[], list[Span]]) -> list[Span]:
    """The median begin and end of every group of calls."""
    return [
        Span(
            spans[0].group,
            statistics.median(span.began_s for span in spans),
            statistics.median(span.ended_s for span in spans),
        )
        for spans in zip(*timelines(timeline), strict=True)
    ]


def occupied_s(runs: Sequence[Sequence[Span]], lanes: Sequence[Lane]) -> dict[str, float]:
    """Median seconds of every subgraph by name, and of all copies of an engine by its name, as ``occupied`` counts."""
    groups = [span.group for span in runs[0]]
    cores = [set(lanes[group.lane].cores) for group in groups]
    after = [
        {*group.waits, *(other for other in range(number) if cores[other] & cores[number])}
        for number, group in enumerate(groups)
    ]
    seconds = [occupied([(span.began_s, span.ended_s) for span in run], after) for run in runs]
    by_name: dict[str, float] = {}
    for group, times in zip(groups, zip(*seconds, strict=True), strict=True):
        lane = lanes[group.lane]
        name = lane.name if lane.copies else group.name
        by_name[name] = by_name.get(name, 0.0) + statistics.median(times)
    return by_name


@contextmanager
def at_work(run: Run) -> Iterator[None]:
    """Repeat ``run`` in a thread of its own while the body is executed."""
    enough = threading.Event()

    def work() -> None:
        while not enough.is_set():
            run()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()
