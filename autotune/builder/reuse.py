"""What other tasks in the log offer to this model's: first candidates, and training data for the cost model."""

from __future__ import annotations

import logging
from dataclasses import replace

from autotune.builder.shipped_priors import shipped_prior
from autotune.importer.program import describe
from costmodels.template_prior import TemplatePrior, in_turns, likely
from schedules.config import Config
from schedules.errors import AutotuneError
from schedules.lower import claim, load_program
from schedules.space import Space
from schedules.target import Target
from schedules.task import Task
from search.searchers.searcher import Result
from search.searchers.transfer import transferred
from tuning_logs.record import RecordKey
from tuning_logs.similarity import Nearness, Neighbourhood, Signature
from tuning_logs.sql_store import TuningLog

logger = logging.getLogger(__name__)

FIRST = 3
"""Configs taken over as first candidates. Heuristic: the best of the nearest tasks mostly agree with each other."""

Prior = tuple[tuple[Space, tuple[Result, ...]], ...]


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
        self._spaces: dict[RecordKey, Space | None] = {}
        self._neighbourhood = Neighbourhood(log, self._signature, self._targets)

    def near(self, task: Task, key: RecordKey) -> Nearness:
        """The near hits of ``task``, whose records are kept under ``key``."""
        return self._neighbourhood.near(key, Signature(task.shapes, task.dtypes))

    def guided(self, space: Space, nearness: Nearness) -> Space:
        """``space`` with the best configs of the nearest tasks, and what the shipped prior likes, among its first.

        Nearest tasks, prior and the template's own guesses take turns: the first slot then tries one of each.
        """
        best = [config for rank in range(FIRST) for config in _ranked(nearness, rank)]
        prior = self.template(space)
        liked = likely(prior, space) if prior else ()
        return replace(space, initial=in_turns(transferred(space, best, FIRST), liked, space.initial))

    def template(self, space: Space) -> TemplatePrior | None:
        """What the package knows of the template of ``space`` on machines like this one."""
        return shipped_prior(space, self._target.isa)

    def prior(self, nearness: Nearness) -> Prior:
        """The neighbours' results with their spaces, nearest first, as ``SearchContext.prior`` takes them."""
        found = []
        for neighbour in nearness.used:
            space = self._space(neighbour.key)
            if space is not None:
                found.append((space, tuple((record.config, record.measurement) for record in neighbour.records)))
        return tuple(found)

    def _space(self, key: RecordKey) -> Space | None:
        if key not in self._spaces:
            program, target = self._log.workload(key.task), self._targets.get(key.target)
            self._spaces[key] = None if program is None or target is None else _claimed(program, target, key)
        return self._spaces[key]

    def _signature(self, task: str) -> Signature | None:
        program = self._log.workload(task)
        return None if program is None else signature_of(program)


def _ranked(nearness: Nearness, rank: int) -> list[Config]:
    """The neighbours' configs of one rank, nearest neighbour first; lower ranks only of the nearer ones."""
    return [n.records[rank].config for n in nearness.used[: FIRST - rank] if rank < len(n.records)]


def signature_of(program: str) -> Signature | None:
    """The signature of a kept program, or None if another version wrote it and it cannot be read."""
    try:
        task = describe(load_program(program), "-", "-", "-", ())
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        logger.debug("a program of the log cannot be read: %s", error)
        return None
    return Signature(task.shapes, task.dtypes)


def _claimed(program: str, target: Target, key: RecordKey) -> Space | None:
    """The space that ``key``'s configs are of, or None if this version offers another."""
    try:
        space = claim(load_program(program), target).space
    except (ValueError, TypeError, RuntimeError, AutotuneError) as error:
        logger.debug("a program of the log has no space: %s", error)
        return None
    return space if space.identity == key.space else None
