"""Courses: how the search of each task of a model goes, whoever allocates.

Notation: s = slots that a task has had.

A task's search depends on the seed, and on what other tasks of its template have shown, which here is what they know
after s − 1 slots each: as if slots were dealt evenly. So one set of courses serves every allocator, which only decides
how far each of them has run; to one that serves tasks unevenly this lends a little more, or less, than it would have.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autotune.measure.evaluator import make_evaluator
from autotune.replay.recorded_runs import ReplayBench
from autotune.replay.trace import Trace
from autotune.tuning.sibling_tasks import GROWN, RENEWED, WORTHWHILE
from search.allocation import Outlook, Outlooking, TaskState, slot_trials
from search.searcher import Result, SearchContext, Searcher
from search.searcher_catalog import make_searcher


@dataclass(frozen=True)
class CourseRules:
    """What every course gets.

    Attributes:
        trials: most trials of a task.
        pace: trials of a task's first slots.
        foresee: whether states hold the searchers' outlooks.
        batch: trials of every later slot.
        searcher, cost_model, evaluator: by name.
        overhead_s: seconds that a slot costs beside builds and runs.
    """

    trials: int = 128
    batch: int = 8
    pace: tuple[int, ...] = ()
    foresee: bool = False
    searcher: str = "adaptive"
    cost_model: str = "boosted"
    evaluator: str = "adaptive"
    overhead_s: float = 0.02


@dataclass
class Course:
    """One task's search, slot by slot.

    Attributes:
        states: (slots + 1,) what an allocator may know after s slots.
        true_s: (slots + 1,) true latency of the config that looks best after s slots; the untuned one at first.
        spent_s: (slots + 1,) seconds spent after s slots.
        results: everything measured.
        thinking_s: seconds that ask, tell and outlook took here.
    """

    trace: Trace
    states: list[TaskState]
    true_s: list[float]
    spent_s: list[float] = field(default_factory=lambda: [0.0])
    results: list[Result] = field(default_factory=list)
    marks: list[int] = field(default_factory=lambda: [0])
    thinking_s: float = 0.0

    def known(self, slots: int) -> tuple[Result, ...]:
        """Results of the first ``slots`` slots."""
        return tuple(self.results[: self.marks[min(slots, len(self.marks) - 1)]])


class Courses:
    """The courses of all tasks of a model for one seed, extended as far as they are asked for."""

    def __init__(self, traces: Sequence[Trace], seed: int, rules: CourseRules) -> None:
        self._rules = rules
        self._seed = seed
        self.courses = [Course(trace, [_state(trace, [], [], None, False)], [trace.untuned_s]) for trace in traces]
        rngs = [np.random.default_rng([seed, index]) for index in range(len(traces))]
        evaluator = make_evaluator(rules.evaluator)
        self._benches = [ReplayBench(trace, evaluator, rng) for trace, rng in zip(traces, rngs, strict=True)]
        self._searchers: list[Searcher | None] = [None] * len(traces)
        self._shown = [0] * len(traces)

    def state(self, index: int, slots: int) -> TaskState:
        """Task ``index`` after ``slots`` slots; its last state if it has no more."""
        course = self.courses[index]
        while len(course.states) <= slots and not course.states[-1].exhausted:
            self._advance(index)
        return course.states[min(slots, len(course.states) - 1)]

    def finish(self) -> None:
        """Run every course to its end."""
        for slots in range(1, 1 + len(self._rules.pace) + math.ceil(self._rules.trials / self._rules.batch)):
            for index in range(len(self.courses)):
                self.state(index, slots)

    def _advance(self, index: int) -> None:
        course, rules = self.courses[index], self._rules
        slot = len(course.states)
        trials = len(course.results)
        searcher = self._searchers[index]
        began = time.perf_counter()
        if searcher is None or (trials <= RENEWED and course.trace.space.size > WORTHWHILE):
            searcher = self._renewed(index, slot)
        configs = searcher.ask(min(slot_trials(rules.pace, trials, rules.batch), rules.trials - trials))
        course.thinking_s += time.perf_counter() - began
        before = course.states[-1]
        results = [(config, self._benches[index].measure(config)) for config in configs]
        spent = [measured.compile_s + measured.run_s for _, measured in results]
        began = time.perf_counter()
        searcher.tell(results)
        outlook = searcher.outlook(rules.batch) if rules.foresee and isinstance(searcher, Outlooking) else None
        course.thinking_s += time.perf_counter() - began
        course.results += results
        latencies = [*before.latencies_s, *(m.latency_s if m.ok else None for _, m in results)]
        share = rules.overhead_s / max(len(spent), 1)
        costs = [*before.spent_s, *(cost + share for cost in spent)]
        exhausted = not configs or len(course.results) >= min(rules.trials, len(course.trace.true_s))
        course.states.append(_state(course.trace, latencies, costs, outlook, exhausted))
        course.true_s.append(self._chosen_s(course))
        course.spent_s.append(course.spent_s[-1] + sum(spent) + rules.overhead_s)
        course.marks.append(len(course.results))

    def _renewed(self, index: int, slot: int) -> Searcher:
        """The task's searcher, made anew when other tasks have shown enough since (``peers.Renewal``)."""
        course = self.courses[index]
        template = course.trace.task.template
        prior = []
        for other, theirs in enumerate(self.courses):
            if other != index and theirs.trace.task.template == template and slot > 1:
                self.state(other, slot - 1)
                known = theirs.known(slot - 1)
                if known:
                    prior.append((theirs.trace.space, known))
        searcher, shown = self._searchers[index], sum(len(results) for _, results in prior)
        if searcher is None or (shown and shown >= GROWN * self._shown[index]):
            self._shown[index] = shown
            rng = np.random.default_rng([self._seed, index, slot])
            context = SearchContext(course.trace.space, rng, self._rules.cost_model, tuple(prior))
            searcher = make_searcher(self._rules.searcher, context)
            if course.results:
                searcher.tell(course.results)
            self._searchers[index] = searcher
        return searcher

    @staticmethod
    def _chosen_s(course: Course) -> float:
        """True latency of what would be shipped."""
        trace = course.trace
        best = min(
            (result for result in course.results if result[1].ok), key=lambda result: result[1].latency_s, default=None
        )
        return trace.untuned_s if best is None else float(trace.true_s[trace.space.index(best[0])])


def _state(
    trace: Trace,
    latencies: Sequence[float | None],
    costs: Sequence[float],
    outlook: Outlook | None,
    exhausted: bool,
) -> TaskState:
    task = trace.task
    return TaskState(
        task.key, task.template, task.weight, task.flop, trace.bound_s, tuple(latencies), tuple(costs), exhausted,
        outlook,
    )  # fmt: skip
