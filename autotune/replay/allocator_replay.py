"""Allocators compared on whole models: the model's latency against tuning time.

Notation: t = seconds of tuning, L(t) = the model's latency as the weighted sum of its tasks, L∞ = when every trajectory
has run to its end.

The oracle knows every trajectory. It serves the steepest segment of the trajectories' lower convex hulls next: no
allocator has a smaller area, except by what a hull cuts off a staircase.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.replay.trajectories import Trajectories, Trajectory
from costmodels.cost_model import Floats
from search.allocators.allocation import Allocator, TaskState
from search.allocators.allocator_catalog import make_allocator

ORACLE = "oracle"

DONE = 1.003
"""A replay ends when the model is within this factor of its final latency: nothing is left to compare at 0.5 %."""


@dataclass(frozen=True)
class Curve:
    """L(t) as steps: from ``times[i]`` on it is ``latencies[i]``.

    Attributes:
        thinking_s: seconds that the allocator took here.
    """

    times: Floats
    latencies: Floats
    thinking_s: float = 0.0

    def time_to(self, latency_s: float) -> float:
        """Seconds until the model is at or below ``latency_s`` for good; infinite if it never is."""
        above = np.flatnonzero(self.latencies > latency_s)
        if not len(above):
            return 0.0
        after = int(above[-1]) + 1
        return float(self.times[after]) if after < len(self.times) else float("inf")

    def area(self, final_s: float, horizon_s: float) -> float:
        """∫ (L(t) / L∞ − 1) dt up to ``horizon_s``: seconds."""
        ends = np.minimum(np.append(self.times[1:], horizon_s), horizon_s)
        spans = np.maximum(ends - np.minimum(self.times, horizon_s), 0.0)
        return float((spans * (self.latencies / final_s - 1.0)).sum())


@dataclass(frozen=True)
class Moment:
    """After a slot of a replay.

    Attributes:
        now_s: seconds of tuning so far.
        slots: (tasks,) slots of each task.
        states: (tasks,) what the allocator may know.
        latency_s: true latency of the model.
        thinking_s: seconds that the allocator has taken here.
    """

    now_s: float
    slots: tuple[int, ...]
    states: tuple[TaskState, ...]
    latency_s: float
    thinking_s: float


def pace_of(allocator: str) -> tuple[int, ...]:
    """Trials of the first slots that the allocator of that name wants."""
    return make_allocator(allocator, np.random.default_rng(0)).pace


def moments(trajectories: Trajectories, allocator: Allocator) -> Iterator[Moment]:
    """The start, then the moment after each slot until the allocator serves no task."""
    tasks = trajectories.tasks
    places = {task.trace.task.key: index for index, task in enumerate(tasks)}
    slots = [0] * len(tasks)
    states = [task.states[0] for task in tasks]
    true_s = [task.true_s[0] for task in tasks]
    now_s, thinking_s = 0.0, 0.0
    while True:
        latency_s = sum(state.weight * latency for state, latency in zip(states, true_s, strict=True))
        yield Moment(now_s, tuple(slots), tuple(states), latency_s, thinking_s)
        began = time.perf_counter()
        key = allocator.next(states)
        thinking_s += time.perf_counter() - began
        if key is None:
            return
        index = places[key]
        slots[index] += 1
        states[index] = trajectories.state(index, slots[index])
        place = min(slots[index], len(tasks[index].true_s) - 1)
        now_s += tasks[index].spent_s[place] - tasks[index].spent_s[place - 1]
        true_s[index] = tasks[index].true_s[place]


def allocate(trajectories: Trajectories, allocator: str, seed: int, final_s: float) -> Curve:
    """Deal slots until everything is done or the model is near ``final_s`` seconds."""
    times, latencies = [], []
    for moment in moments(trajectories, make_allocator(allocator, np.random.default_rng([seed, 7]))):
        times.append(moment.now_s)
        latencies.append(moment.latency_s)
        if moment.latency_s <= DONE * final_s and min(moment.slots):
            break
    return Curve(np.array(times), np.array(latencies), moment.thinking_s)


def final_latency(trajectories: Trajectories) -> float:
    """L∞ in seconds."""
    trajectories.finish()
    return sum(task.trace.task.weight * task.true_s[-1] for task in trajectories.tasks)


def total_s(trajectories: Trajectories) -> float:
    """Seconds until every trajectory is at its end."""
    trajectories.finish()
    return sum(task.spent_s[-1] for task in trajectories.tasks)


def oracle(trajectories: Trajectories) -> Curve:
    """What an allocator that knows every trajectory could do."""
    trajectories.finish()
    segments = [segment for task in trajectories.tasks for segment in _hull(task)]
    segments.sort(key=lambda segment: -segment[0])
    start = sum(task.trace.task.weight * task.true_s[0] for task in trajectories.tasks)
    spans = np.array([span for _, span, _ in segments])
    cuts = np.array([cut for _, _, cut in segments])
    return Curve(np.append(0.0, np.cumsum(spans)), start - np.append(0.0, np.cumsum(cuts)))


def _hull(task: Trajectory) -> list[tuple[float, float, float]]:
    """(slope, seconds, cut) of each segment of the lower convex hull of weighted latency over time."""
    weight = task.trace.task.weight
    lows: Sequence[float] = np.minimum.accumulate(task.true_s).tolist()
    points = list(zip(task.spent_s, lows, strict=True))
    found: list[tuple[float, float, float]] = []
    place = 0
    while place < len(points) - 1:
        t0, l0 = points[place]
        slopes = [(weight * (l0 - low) / (t - t0), index) for index, (t, low) in enumerate(points) if index > place]
        slope, best = max(slopes)
        if slope <= 0:
            break
        found.append((slope, points[best][0] - t0, weight * (l0 - points[best][1])))
        place = best
    return found
