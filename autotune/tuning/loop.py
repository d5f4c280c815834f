"""The tuning loop: allocate a slot, ask, measure, append, tell.

The only loop of the program. Everything that it uses is behind a protocol.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.events import Observer, SlotBegan, SlotDone
from autotune.host.interruption import Interruption
from autotune.measure.measurer import Measurer
from autotune.tuning.job import FINAL, Job, sibling_results
from schedules.config import Config
from search.allocators.allocation import Allocator, TaskState, latency_share, slot_trials
from search.allocators.remaining import remaining_gain, why_enough
from search.allocators.stopping import Limits, every_task_tried, why_run_done, why_task_done
from tuning_logs.measurement import Measurement
from tuning_logs.sql_store import TuningLog

FINALISTS = 12
"""Configs of a task that are timed once more against each other at the end of a run. How often the best recorded config
is lost with them: ``tune replay TRACES --evaluator adaptive`` (docs/lab: search)."""

CLOSE = 1.4
"""Configs within this factor of a task's best latency are finalists: single measurements of one config differed by up
to 6 % from pass to pass, and the best of many is the luckiest."""


@dataclass
class TuningLoop:
    """One run of the loop over the tasks of one program.

    Attributes:
        jobs: task key → its searcher and history.
        batch: configs per slot; the first slots of a task are shorter where the allocator says so.
        at_once: programs that are built at the same time: no slot is shorter than these and ``batch`` allow, since
            builders that have nothing to do save nothing. One of a task's first slot builds its untuned program.
        clock: seconds, monotonic.
        spent_s: seconds that earlier runs in the log have already spent on these tasks.
        until: the run ends when the remaining gain is below this share of the model's latency; 0 has no such end.
        interruption: checked before every slot.
    """

    jobs: Mapping[str, Job]
    allocator: Allocator
    measurer: Measurer
    log: TuningLog
    limits: Limits
    batch: int
    clock: Callable[[], float]
    observe: Observer
    spent_s: float = 0.0
    until: float = 0.0
    interruption: Interruption = field(default_factory=Interruption)
    at_once: int = 1

    def run(self) -> str:
        """Tune until a limit is reached; the reason, in words.

        Raises:
            KeyboardInterrupt: on Ctrl-C; a slot that is being measured is lost.
        """
        began = self.clock()
        while True:
            self.interruption.check()
            slot = self.clock()
            states = [job.state for job in self.jobs.values()]
            reason = why_run_done(states, slot - began + self.spent_s, self.limits) or self._why_enough(states)
            if reason is not None:
                return reason
            key = self.allocator.next([state for state in states if why_task_done(state, self.limits) is None])
            if key is None:
                return "no task is expected to gain more"
            job = self.jobs[key]
            configs = job.ask(self._count(job), sibling_results(job, self.jobs.values()))
            self.observe(SlotBegan(job.task, len(configs), self.allocator.why(key, states)))
            measured = self._measured(job, configs)
            trial_s = (self.clock() - slot) / max(1, len(configs))
            results = list(zip(configs, measured, strict=True))
            with self.interruption.held():  # what is logged is counted too
                self.log.append(job.records(results, trial_s, origins=self.measurer.origins))
                job.tell(results, trial_s)
            failures = tuple(measurement.error for measurement in measured if measurement.error is not None)
            seconds = self.clock() - began
            self.observe(SlotDone(job.task, job.state, len(measured), len(failures), seconds, failures))

    def _measured(self, job: Job, configs: Sequence[Config]) -> list[Measurement]:
        """Return the measurements of a slot's ``configs``.

        An earlier run's best is timed anew beside them: the machine may be in another state than it was then.
        """
        incumbent = job.incumbent
        if incumbent is not None and not job.is_tuned:
            self.measurer.lead(job.candidate(incumbent[0]), incumbent[1])
        return self.measurer.measure(
            [job.candidate(config) for config in configs], None if incumbent is None else incumbent[1]
        )

    def settle(self, deadline: float = math.inf) -> None:
        """Time the finalists of every task that was tuned in this run once more, interleaved.

        The fastest of many noisy measurements is partly the luckiest; its records are corrected here.

        Args:
            deadline: by ``clock``; from then on the tasks that take the least of the model's time are left as they are.

        Raises:
            KeyboardInterrupt: on Ctrl-C.
        """
        for job in sorted(self.jobs.values(), key=lambda job: latency_share(job.state), reverse=True):
            self.interruption.check()
            if self.clock() >= deadline:
                return
            finalists = job.finalists(FINALISTS, CLOSE) if job.is_tuned else []
            if len(finalists) > 1:
                began = self.clock()
                ranked = self.measurer.rank([job.candidate(config) for config in finalists])
                trial_s = (self.clock() - began) / len(finalists)
                results = list(zip(finalists, ranked, strict=True))
                self.log.append(job.records(results, trial_s, FINAL, self.measurer.origins))

    def _why_enough(self, states: Sequence[TaskState]) -> str | None:
        """Why more tuning is not worth it; never before every task was tried."""
        if not self.until or not every_task_tried(states):
            return None
        return why_enough(remaining_gain(states, self.limits), self.until)

    def _count(self, job: Job) -> int:
        trials = job.state.trials
        builders = self.at_once if trials else self.at_once - 1
        count = max(slot_trials(self.allocator.pace, trials, self.batch), min(self.batch, builders))
        if self.limits.trials is None:
            return count
        return max(1, min(count, self.limits.trials - sum(job.state.trials for job in self.jobs.values())))
