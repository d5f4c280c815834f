"""Trajectories: the search of each task of a recorded model, slot by slot, whatever the allocator.

Notation: s = slots that a task has had.

A task's search depends on the seed and on what sibling tasks have shown, which here is what they know after s − 1 slots
each, as if slots were dealt evenly. So one set of trajectories serves every allocator, which only decides how far each
of them has run. An allocator that serves tasks unevenly has a little more, or less, from siblings than it would have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.contrib.replay.recorded_runs import EVALUATOR, ReplayBench, SearchRules, context_of, run_slot
from autotune.contrib.replay.trace import Trace
from autotune.measure.evaluator import make_evaluator
from search.allocators.allocation import TaskState, slot_trials
from search.allocators.stopping import credible_bound_s
from search.searchers.searcher import Result, Searcher, Siblings
from search.searchers.searcher_catalog import make_searcher
from search.searchers.warm_restart import WarmRestart

OVERHEAD_S = 0.02
"""Seconds that a slot costs beside builds and runs. Heuristic, not measured."""


@dataclass
class Trajectory:
    """One task's search, slot by slot.

    Attributes:
        states: (slots + 1,) what an allocator may know after s slots.
        true_s: (slots + 1,) true latency of the config that looks best after s slots; the untuned one at first.
        spent_s: (slots + 1,) seconds spent after s slots.
        results: everything measured.
    """

    trace: Trace
    states: list[TaskState]
    true_s: list[float]
    spent_s: list[float] = field(default_factory=lambda: [0.0])
    results: list[Result] = field(default_factory=list)

    def known(self, slots: int) -> tuple[Result, ...]:
        """Results of the first ``slots`` slots."""
        return tuple(self.results[: self.states[min(slots, len(self.states) - 1)].trials])

    def add(self, results: Sequence[Result], rules: SearchRules) -> None:
        """Append a slot."""
        self.results += results
        before = self.states[-1]
        latencies_s = (*before.latencies_s, *(m.latency_s if m.ok else None for _, m in results))
        costs = [measured.compile_s + measured.run_s for _, measured in results]
        share_s = OVERHEAD_S / max(len(costs), 1)
        self.states.append(
            replace(
                before,
                bound_s=credible_bound_s(self.trace.bound_s, latencies_s),
                latencies_s=latencies_s,
                spent_s=(*before.spent_s, *(cost + share_s for cost in costs)),
                exhausted=not results or len(self.results) >= min(rules.trials, len(self.trace.true_s)),
            )
        )
        valid = [result for result in self.results if result[1].ok]
        if valid:
            best, _ = min(valid, key=lambda result: result[1].latency_s)
            self.true_s.append(float(self.trace.true_s[self.trace.space.index(best)]))
        else:
            self.true_s.append(self.trace.untuned_s)
        self.spent_s.append(self.spent_s[-1] + sum(costs) + OVERHEAD_S)


class Trajectories:
    """The trajectories of all tasks of a model for one seed, extended as far as they are asked for."""

    def __init__(self, traces: Sequence[Trace], seed: int, rules: SearchRules) -> None:
        self._rules = rules
        self._seed = seed
        self.tasks = [Trajectory(trace, [_untried(trace)], [trace.untuned_s]) for trace in traces]
        rngs = [np.random.default_rng([seed, index]) for index in range(len(traces))]
        evaluator = make_evaluator(EVALUATOR)
        self._benches = [ReplayBench(trace, evaluator, rng) for trace, rng in zip(traces, rngs, strict=True)]
        contexts = [context_of(trace, self._rng(index, 1)) for index, trace in enumerate(traces)]
        self._restarts = [WarmRestart(rules.searcher, context) for context in contexts]
        self._searchers: list[Searcher] = [make_searcher(rules.searcher, context) for context in contexts]

    def state(self, index: int, slots: int) -> TaskState:
        """Task ``index`` after ``slots`` slots; its last state if it has no more."""
        task = self.tasks[index]
        while len(task.states) <= slots and not task.states[-1].exhausted:
            self._advance(index)
        return task.states[min(slots, len(task.states) - 1)]

    def finish(self) -> None:
        """Run every trajectory to its end."""
        for slots in range(1, 1 + len(self._rules.pace) + math.ceil(self._rules.trials / self._rules.batch)):
            for index in range(len(self.tasks)):
                self.state(index, slots)

    def _advance(self, index: int) -> None:
        task, rules = self.tasks[index], self._rules
        slot, trials = len(task.states), len(task.results)
        if self._restarts[index].wanted(trials):
            siblings = self._siblings(index, slot - 1)
            renewed = self._restarts[index].searcher_after(trials, siblings, self._rng(index, slot))
            if renewed is not None:
                self._searchers[index] = renewed
                if task.results:
                    renewed.tell(task.results)
        count = min(slot_trials(rules.pace, trials, rules.batch), rules.trials - trials)
        results, _ = run_slot(self._searchers[index], self._benches[index], count)
        task.add(results, rules)

    def _siblings(self, index: int, slots: int) -> Siblings:
        """Results of the sibling tasks of task ``index`` after ``slots`` slots each."""
        template = self.tasks[index].trace.task.template
        siblings = []
        for other, task in enumerate(self.tasks):
            if slots and other != index and task.trace.task.template == template:
                self.state(other, slots)
                siblings.append((task.trace.space, task.known(slots)))
        return [(space, results) for space, results in siblings if results]

    def _rng(self, index: int, slot: int) -> np.random.Generator:
        """Randomness of the searcher that task ``index`` has from its ``slot``-th slot on."""
        return np.random.default_rng([self._seed, index, slot])


class PartOfTrajectories:
    """Some tasks of ``whole``, searched as they are there: what an allocator would have that knows no others.

    Args:
        places: numbers of its tasks in ``whole``.
    """

    def __init__(self, whole: Trajectories, places: Sequence[int]) -> None:
        self._whole, self._places = whole, places
        self.tasks = [whole.tasks[place] for place in places]

    def state(self, index: int, slots: int) -> TaskState:
        """Implement ``Trajectories.state``."""
        return self._whole.state(self._places[index], slots)

    def finish(self) -> None:
        """Implement ``Trajectories.finish``, of all tasks of the whole."""
        self._whole.finish()


def _untried(trace: Trace) -> TaskState:
    task = trace.task
    return TaskState(task.key, task.template, task.weight, task.flop, trace.bound_s)
