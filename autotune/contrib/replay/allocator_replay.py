"""Allocators compared on whole models: the model's latency against tuning time.

Notation: t = seconds of tuning, L(t) = the model's latency as the weighted sum of its tasks, L∞ = when every trajectory
has run to its end.

The oracle is a bound, not a strategy: it knows every trajectory, may stop inside of a slot, and follows the lower
convex hulls of the trajectories, steepest segment first. That is the optimum of the relaxed problem, so no allocator
reaches a latency sooner.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.contrib.replay.trajectories import PartOfTrajectories, Trajectories, Trajectory
from costmodels.cost_model import Floats
from search.allocators.allocation import Allocator, TaskState
from search.allocators.allocator_catalog import make_allocator

ORACLE = "oracle"
ONE_BY_ONE = "one by one"

DONE = 1.003
"""A replay ends when the model is within this factor of its final latency: nothing is left to compare at 0.5 %."""


@dataclass(frozen=True)
class Curve:
    """L(t) as steps: from ``times[i]`` on it is ``latencies[i]``.

    Attributes:
        thinking_s: seconds that the allocator took here.
        linear: L(t) is linear between the times instead.
    """

    times: Floats
    latencies: Floats
    thinking_s: float = 0.0
    linear: bool = False

    def at(self, times: Floats) -> Floats:
        """L at ``times`` (n,), none before the first."""
        if self.linear:
            return np.interp(times, self.times, self.latencies)
        return np.asarray(self.latencies[np.searchsorted(self.times, times, side="right") - 1])

    def time_to(self, latency_s: float) -> float:
        """Seconds until the model is at or below ``latency_s`` for good; infinite if it never is."""
        above = np.flatnonzero(self.latencies > latency_s)
        if not len(above):
            return 0.0
        last = int(above[-1])
        if last + 1 == len(self.times):
            return float("inf")
        if self.linear:
            ends = slice(last + 1, last - 1 if last else None, -1)
            return float(np.interp(latency_s, self.latencies[ends], self.times[ends]))
        return float(self.times[last + 1])

    def area(self, final_s: float, start_s: float, horizon_s: float) -> float:
        """∫ (L(t) / L∞ − 1) dt from ``start_s`` to ``horizon_s``: seconds."""
        inside = self.times[(self.times > start_s) & (self.times < horizon_s)]
        times = np.concatenate([[start_s], inside, [max(start_s, horizon_s)]])
        heights = self.at(times) / final_s - 1.0
        before = 0.5 * (heights[:-1] + heights[1:]) if self.linear else heights[:-1]
        return float((np.diff(times) * before).sum())


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


def moments(trajectories: Trajectories | PartOfTrajectories, allocator: Allocator) -> Iterator[Moment]:
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


def allocate(trajectories: Trajectories | PartOfTrajectories, allocator: str, seed: int, final_s: float) -> Curve:
    """Deal slots until everything is done or the model is near ``final_s`` seconds."""
    times, latencies = [], []
    for moment in moments(trajectories, make_allocator(allocator, np.random.default_rng([seed, 7]))):
        times.append(moment.now_s)
        latencies.append(moment.latency_s)
        if moment.latency_s <= DONE * final_s and min(moment.slots):
            break
    return Curve(np.array(times), np.array(latencies), moment.thinking_s)


def final_latency(trajectories: Trajectories | PartOfTrajectories) -> float:
    """L∞ in seconds."""
    trajectories.finish()
    return sum(task.trace.task.weight * task.true_s[-1] for task in trajectories.tasks)


def total_s(trajectories: Trajectories) -> float:
    """Seconds until every trajectory is at its end."""
    trajectories.finish()
    return sum(task.spent_s[-1] for task in trajectories.tasks)


def first_slots_s(trajectories: Trajectories) -> float:
    """Seconds that one slot of every task takes: until then an allocator has little to decide."""
    trajectories.finish()
    return sum(task.spent_s[1] for task in trajectories.tasks)


def one_by_one(alone: Sequence[Curve]) -> Curve:
    """Models tuned one after the other instead of together, each for an equal share of the time.

    Args:
        alone: the curve of each model's own tuning, on the same searches of its tasks.
    """
    times = np.unique(np.concatenate([len(alone) * curve.times for curve in alone]))
    return Curve(times, np.sum([curve.at(times / len(alone)) for curve in alone], axis=0))


def oracle(rivals: Sequence[Trajectories]) -> Curve:
    """A bound for every allocator.

    Args:
        rivals: the same tasks searched in slots of different lengths; the bound may go along any of them.
    """
    for trajectories in rivals:
        trajectories.finish()
    by_task = list(zip(*(trajectories.tasks for trajectories in rivals), strict=True))
    segments = [segment for searches in by_task for segment in _hull(searches)]
    segments.sort(key=lambda segment: -segment[0])
    start = sum(task.trace.task.weight * task.true_s[0] for task in rivals[0].tasks)
    spans = np.array([span for _, span, _ in segments])
    cuts = np.array([cut for _, _, cut in segments])
    return Curve(np.append(0.0, np.cumsum(spans)), start - np.append(0.0, np.cumsum(cuts)), linear=True)


def _hull(searches: Sequence[Trajectory]) -> list[tuple[float, float, float]]:
    """(slope, seconds, cut) of each segment of the lower convex hull of weighted latency over time.

    Args:
        searches: of one task; points of all of them count.
    """
    weight = searches[0].trace.task.weight
    points = sorted({point for task in searches for point in zip(task.spent_s, task.true_s, strict=True)})
    segments: list[tuple[float, float, float]] = []
    place = 0
    while place < len(points) - 1:
        t0, l0 = points[place]
        slopes = [(weight * (l0 - low) / (t - t0), index) for index, (t, low) in enumerate(points) if index > place]
        slope, best = max(slopes)
        if slope <= 0:
            break
        segments.append((slope, points[best][0] - t0, weight * (l0 - points[best][1])))
        place = best
    return segments
