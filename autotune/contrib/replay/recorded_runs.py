"""One task of a trace as a machine: candidates are built and timed at the recorded cost, with any evaluator.

A candidate's runs come from one recorded pass, drawn by the seed. They go on through the later passes when an evaluator
wants more than a pass holds, and round again after the last. An evaluator that races gets the control as it was at that
moment: the incumbent's latency times the recorded slowness of the machine, run by run, as in ``measure/racing.py``.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle

import numpy as np

from autotune.builder.shipped_posteriors import shipped_posterior
from autotune.contrib.replay.trace import Trace
from autotune.measure.evaluator import CONFIRMATIONS, Evaluator, at_speed_of
from autotune.measure.racing import in_turn
from autotune.options import Options
from costmodels.posterior import in_turns, likely
from schedules.config import Config
from search.allocators.allocation import SLOT
from search.searchers.searcher import Result, SearchContext, Searcher
from tuning_logs.measurement import ERROR_KINDS, Measurement

LONGEST = 4000
"""Most runs of one candidate: the paper's 500 are the most that an evaluator here asks for, so the bound only ends one
that would never stop."""

BUILDERS = 2
"""Processes that build at the same time, as on the recording machine: a build is charged with its share."""


COST_MODEL, EVALUATOR = Options.cost_model, Options.evaluator
"""Cost model and evaluator of every search: the defaults of a run."""


@dataclass(frozen=True)
class SearchRules:
    """How one recorded task is searched.

    Attributes:
        trials: most trials.
        batch: trials of a slot after those of ``pace``.
        pace: trials of the first slots.
        searcher: by name.
    """

    trials: int = 128
    batch: int = SLOT
    pace: tuple[int, ...] = ()
    searcher: str = "adaptive"


def context_of(trace: Trace, rng: np.random.Generator) -> SearchContext:
    """A searcher's knowledge in a run with an empty log: the first guesses and the template's shipped posterior."""
    space = replace(trace.space, initial=first_guesses(trace))
    return SearchContext(space, rng, COST_MODEL, template=shipped_posterior(trace.space, trace.isa))


def first_guesses(trace: Trace) -> tuple[Config, ...]:
    """Return the first trials of a run with an empty log: the posterior's and the template's favourites, in turns."""
    template = shipped_posterior(trace.space, trace.isa)
    return in_turns(likely(template, trace.space) if template else (), trace.space.initial)


class ReplayBench:
    """Times configs of one trace; ``rng`` draws the pass in which each is met."""

    def __init__(
        self, trace: Trace, evaluator: Evaluator, rng: np.random.Generator, confirmations: int = CONFIRMATIONS
    ) -> None:
        self._confirmations = confirmations if evaluator.races else 0
        self._trace = trace
        self._evaluator = evaluator
        self._starts = rng.integers(trace.runs_s.shape[1], size=len(trace.true_s))
        self._best: tuple[int, float] | None = None
        self._known: dict[int, Measurement] = {}
        self.run_s = 0.0

    def measure(self, config: Config) -> Measurement:
        """As the machine would: equal code is timed once, the best so far is the incumbent."""
        trace, index = self._trace, self._trace.space.index(config)
        compile_s = float(trace.compile_s[index]) / BUILDERS
        if trace.errors[index] >= 0:
            return Measurement(error=ERROR_KINDS[trace.errors[index]], message="as recorded", compile_s=compile_s)
        code = int(trace.codes[index])
        if code in self._known:
            return replace(self._known[code], compile_s=compile_s, run_s=0.0)
        latency_s, timed_s = self._believed(index)
        self.run_s += timed_s
        run_s = timed_s + float(trace.overhead_s[index])
        self._known[code] = Measurement((latency_s,), None, "", compile_s, run_s, f"{code:x}")
        if self._best is None or latency_s < self._best[1]:
            self._best = (index, latency_s)
        return self._known[code]

    def ranked(self, indices: list[int], evaluator: Evaluator) -> dict[int, float]:
        """Latency in seconds of finalists timed in turn, each from the same moment on, at the machine's usual speed."""
        series = in_turn([self._runs(index) for index in indices], evaluator, None)
        self.run_s += math.fsum(map(math.fsum, series))
        return {index: statistics.median(runs) for index, runs in zip(indices, series, strict=True)}

    def _believed(self, index: int) -> tuple[float, float]:
        """Estimated latency in seconds, confirmed as ``LocalMeasurer`` does, and the seconds of all runs."""
        latency_s, spent_s = self._timed(index, 0)
        for later in range(1, 1 + self._confirmations):
            if self._best is None or latency_s >= self._best[1]:
                break
            again_s, timed_s = self._timed(index, later)
            latency_s, spent_s = max(latency_s, again_s), spent_s + timed_s
        return latency_s, spent_s

    def _timed(self, index: int, later: int) -> tuple[float, float]:
        """Estimated latency in seconds, and the seconds of the runs of the config and the control.

        Args:
            later: passes after the one in which the config was met.
        """
        runs_s, slowness = self._trace.series(index, (int(self._starts[index]) + later) % self._trace.runs_s.shape[1])
        if self._evaluator.races and self._best is not None:
            return self._duel(runs_s, slowness, *self._best)
        taken = _taken(self._evaluator, runs_s)
        return statistics.median(taken), math.fsum(taken)

    def _duel(self, runs_s: np.ndarray, slowness: np.ndarray, best: int, recorded_s: float) -> tuple[float, float]:
        """Work like ``measure.racing.duel``."""
        usual_s = float(self._trace.true_s[best])
        drift = np.where(np.isnan(slowness), 1.0, slowness)
        runs: list[float] = []
        controls: list[float] = []
        current = recorded_s
        while self._evaluator.more(runs, current):
            place = len(runs) % len(runs_s)
            runs.append(float(runs_s[place]))
            if self._evaluator.more(runs, current):
                controls.append(usual_s * float(drift[place]))
                current = statistics.median(controls)
        spent = math.fsum(runs) + math.fsum(controls)
        return statistics.median(at_speed_of(recorded_s, runs, controls)), spent

    def _runs(self, index: int) -> Callable[[], float]:
        """A config's recorded runs one after the other, round and round, from the pass after the one it was met in."""
        runs_s = self._trace.levelled(index, (int(self._starts[index]) + 1) % self._trace.runs_s.shape[1])
        return partial(next, cycle(runs_s.tolist()))


def run_slot(searcher: Searcher, bench: ReplayBench, count: int) -> tuple[list[Result], float]:
    """One slot of up to ``count`` trials: ask, measure, tell. Its results, and the seconds that ask and tell took."""
    began = time.perf_counter()
    configs = searcher.ask(count)
    thinking_s = time.perf_counter() - began
    results = [(config, bench.measure(config)) for config in configs]
    began = time.perf_counter()
    searcher.tell(results)
    return results, thinking_s + time.perf_counter() - began


def _taken(rule: Evaluator, runs_s: np.ndarray) -> list[float]:
    """The runs that ``rule`` takes of a series that goes round and round."""
    values = runs_s.tolist()
    taken: list[float] = []
    while len(taken) < LONGEST and (more := rule.more(taken)):
        start = len(taken)
        taken += [values[place % len(values)] for place in range(start, start + min(more, LONGEST - start))]
    return taken
