"""Results of other tasks in the log that help this model's: first candidates, and training data for the cost model."""

from __future__ import annotations

from dataclasses import replace

from autotune.builder.shipped_posteriors import shipped_posterior
from autotune.importer.foreign_programs import ForeignPrograms
from costmodels.posterior import TemplatePosterior, in_turns, likely
from schedules.config import Config
from schedules.space import Space
from schedules.target import Target
from schedules.task import Task
from search.searchers.searcher import Siblings
from search.searchers.siblings import posterior_of, sibling_rows
from search.searchers.transfer import transferred
from tuning_logs.record import RecordKey
from tuning_logs.similarity import Nearness, Neighbour, Neighbourhood, Signature
from tuning_logs.sql_store import TuningLog

FIRST = 3
"""Configs taken over as first candidates. Heuristic: the best of the nearest tasks mostly agree with each other."""

ALIKE = 1.0
"""Distance in doublings up to which the best of another task comes before what the posterior likes best. Measured for
512 x 384 x 1536 on a Zen 5: the best for 64 rows ran at 240 GFLOPS, what the posterior liked at 480 to 510."""


class Reuse:
    """The near hits of one model's tasks.

    Args:
        log: as it is before the run.
        target: this machine's.
    """

    def __init__(self, log: TuningLog, target: Target) -> None:
        self._log = log
        self._target = target
        self._targets = {**log.targets(), target.fingerprint: target}
        self._programs = ForeignPrograms()
        self._spaces: dict[RecordKey, tuple[Space, frozenset[Config]] | None] = {}
        self._posteriors: dict[tuple[str, tuple[str, ...], frozenset[RecordKey]], TemplatePosterior | None] = {}
        self._neighbourhood = Neighbourhood(log, self._signature, self._targets)

    def near(self, task: Task, key: RecordKey) -> Nearness:
        """The near hits of ``task``, whose records are kept under ``key``."""
        return self._neighbourhood.near(key, Signature(task.shapes, task.dtypes))

    def guided(self, space: Space, nearness: Nearness) -> Space:
        """``space`` with the best configs of the nearest tasks, and what the posterior likes, among its first.

        They and the template's own guesses take turns: the first slot then tries one of each.
        """
        best = [config for rank in range(FIRST) for config in _ranked(nearness, rank)]
        posterior = self.posterior(space, nearness)
        known, liked = transferred(space, best, FIRST), likely(posterior, space) if posterior else []
        are_alike = bool(nearness.used) and nearness.used[0].distance <= ALIKE
        first, second = (known, liked) if are_alike else (liked, known)
        return replace(space, initial=in_turns(first, second, space.initial))

    def posterior(self, space: Space, nearness: Nearness) -> TemplatePosterior | None:
        """Return the posterior of the template of ``space`` on machines like this one, after the neighbours' results.

        None if the template was never recorded: its neighbours are ``siblings`` of a search then. Tasks of a model
        mostly have the same neighbours, so that one update serves them all.
        """
        shipped = shipped_posterior(space, self._target.isa)
        if shipped is None:
            return None
        key = space.identity, space.feature_names, frozenset(neighbour.key for neighbour in nearness.used)
        if key not in self._posteriors:
            self._posteriors[key] = posterior_of(space, shipped, sibling_rows(space, self.siblings(nearness)))
        return self._posteriors[key]

    def siblings(self, nearness: Nearness) -> Siblings:
        """The neighbours' results with their spaces, nearest first."""
        siblings = []
        for neighbour in nearness.used:
            known = self._space(neighbour)
            if known is not None:
                space, valid = known
                results = ((record.config, record.measurement) for record in neighbour.records)
                siblings.append((space, tuple(result for result in results if result[0] in valid)))
        return tuple(siblings)

    def _space(self, neighbour: Neighbour) -> tuple[Space, frozenset[Config]] | None:
        key = neighbour.key
        if key not in self._spaces:
            program, target = self._log.workload(key.task), self._targets.get(key.target)
            configs = [record.config for record in neighbour.records]
            known = None
            if program is not None and target is not None:
                known = self._programs.space(key, program, target, configs)
            self._spaces[key] = known
        return self._spaces[key]

    def _signature(self, task: str) -> Signature | None:
        program = self._log.workload(task)
        return None if program is None else self._programs.signature(task, program)


def _ranked(nearness: Nearness, rank: int) -> list[Config]:
    """The neighbours' configs of one rank, nearest neighbour first; lower ranks only of the nearer ones."""
    return [n.records[rank].config for n in nearness.used[: FIRST - rank] if rank < len(n.records)]
