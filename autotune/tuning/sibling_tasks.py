"""What tasks of one run teach each other: those of a template behave alike, so a searcher begins with their results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from schedules.space import Space
from schedules.task import Task
from search.searcher import Result, SearchContext, Searcher
from search.searcher_catalog import make_searcher

if TYPE_CHECKING:
    from autotune.tuning.job import Job

Known = tuple[tuple[Space, tuple[Result, ...]], ...]

RENEWED = 24
"""Trials of its own up to which a task's searcher is made anew. Beyond, its own trials say more than others'."""

GROWN = 2.0
"""The others' results must have grown by this factor since: a new searcher costs the fit of what they share."""

WORTHWHILE = 32
"""Configs of a space below which all of them are tried before a model could have helped."""


def in_run(task: Task, jobs: Mapping[str, Job], spaces: Mapping[str, Space]) -> Known:
    """Results of the run's other tasks of the same template, nearest in operations first."""
    others = [
        job for key, job in jobs.items() if key != task.key and job.task.template == task.template and job.results
    ]
    others.sort(key=lambda job: abs(math.log((job.task.flop + 1) / (task.flop + 1))))
    return tuple((spaces[job.task.key], tuple(job.results)) for job in others)


@dataclass
class Renewal:
    """Makes a task's searcher anew when other tasks have shown enough since.

    Attributes:
        searcher: its name.
        context: what it knows without them; what the run has shown comes before this prior.
        task: whose searcher it is.
        jobs, spaces: of all tasks of the run, by key.
    """

    searcher: str
    context: SearchContext
    task: Task
    jobs: Mapping[str, Job]
    spaces: Mapping[str, Space]
    _known: int = field(default=0, init=False)

    def searcher_after(self, trials: int) -> Searcher | None:
        """A new searcher, told nothing yet, for a task with ``trials`` trials; None where the old one may stay."""
        if trials > RENEWED or self.context.space.size <= WORTHWHILE:
            return None
        peers = in_run(self.task, self.jobs, self.spaces)
        known = sum(len(results) for _, results in peers)
        if known == 0 or known < GROWN * self._known:
            return None
        self._known = known
        return make_searcher(self.searcher, replace(self.context, prior=(*peers, *self.context.prior)))
