"""Allocators compared on whole models: the model's latency against tuning time.

Notation: t = seconds of tuning, L(t) = the model's latency as the weighted sum of its tasks, L∞ = when every course has
run to its end.

The oracle knows every course: it serves the steepest segment of the courses' lower convex hulls next, which no
allocator can beat on the area but for what a hull cuts off a staircase.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autotune.replay.trajectories import Course, CourseRules, Courses
from search.allocation import foresees, pace_of
from search.allocator_catalog import make_allocator

Floats = NDArray[np.float64]
ORACLE = "oracle"
NEAR = (1.10, 1.05, 1.02)
DONE = 1.003
"""A replay ends when the model is this near its final latency: nothing is left to compare."""


@dataclass(frozen=True)
class Curve:
    """L(t) as steps: from ``times[i]`` on it is ``latencies[i]``.

    Attributes:
        thinking_s: seconds that the allocator took here.
        slots: how many it dealt.
    """

    times: Floats
    latencies: Floats
    thinking_s: float = 0.0
    slots: int = 0

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


def rules_of(allocator: str, rules: CourseRules) -> CourseRules:
    """``rules`` with the slots, and the outlooks, that the allocator of that name wants."""
    made = make_allocator(allocator, np.random.default_rng(0))
    return replace(rules, pace=pace_of(made), foresee=foresees(made))


def allocate(courses: Courses, allocator: str, seed: int, final_s: float) -> Curve:
    """Deal slots until everything is done or the model is near ``final_s`` seconds."""
    tasks = courses.courses
    chooser = make_allocator(allocator, np.random.default_rng([seed, 7]))
    weights = [course.trace.task.weight for course in tasks]
    places = {course.trace.task.key: index for index, course in enumerate(tasks)}
    slots = [0] * len(tasks)
    current = [course.true_s[0] for course in tasks]
    states = [courses.state(index, 0) for index in range(len(tasks))]
    times, latencies = [0.0], [sum(w * now for w, now in zip(weights, current, strict=True))]
    thinking_s, now_s = 0.0, 0.0
    while latencies[-1] > DONE * final_s or min(slots) == 0:
        began = time.perf_counter()
        key = chooser.next(states)
        thinking_s += time.perf_counter() - began
        if key is None:
            break
        index = places[key]
        course = tasks[index]
        slots[index] += 1
        states[index] = courses.state(index, slots[index])
        place = min(slots[index], len(course.true_s) - 1)
        now_s += course.spent_s[place] - course.spent_s[place - 1]
        current[index] = course.true_s[place]
        times.append(now_s)
        latencies.append(sum(w * now for w, now in zip(weights, current, strict=True)))
    return Curve(np.array(times), np.array(latencies), thinking_s, len(times) - 1)


def final_latency(courses: Courses) -> float:
    """L∞ in seconds."""
    courses.finish()
    return sum(course.trace.task.weight * course.true_s[-1] for course in courses.courses)


def total_s(courses: Courses) -> float:
    """Seconds until every course is at its end."""
    courses.finish()
    return sum(course.spent_s[-1] for course in courses.courses)


def oracle(courses: Courses) -> Curve:
    """What an allocator that knows every course could do."""
    courses.finish()
    segments: list[tuple[float, float, float]] = []
    for course in courses.courses:
        segments += _hull(course)
    segments.sort(key=lambda segment: -segment[0])
    start = sum(course.trace.task.weight * course.true_s[0] for course in courses.courses)
    spans = np.array([span for _, span, _ in segments])
    cuts = np.array([cut for _, _, cut in segments])
    return Curve(np.append(0.0, np.cumsum(spans)), start - np.append(0.0, np.cumsum(cuts)))


def _hull(course: Course) -> list[tuple[float, float, float]]:
    """(slope, seconds, cut) of each segment of the lower convex hull of weighted latency over time."""
    weight = course.trace.task.weight
    lows: Sequence[float] = np.minimum.accumulate(course.true_s).tolist()
    points = list(zip(course.spent_s, lows, strict=True))
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
