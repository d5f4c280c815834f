"""Cases in workers that may crash or hang; they have TVM and the suite in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.host.fork_server import Handler, Job, Start
from autotune.host.worker_pool import ForkServerProcess, Lost, WorkerPool
from tests.conformance.onnx_nodes.cases import Case, node_cases
from tests.conformance.onnx_nodes.trial import Outcome, attempt

HANDLER = f"{__name__}:CaseHandler"

LIMIT_S = 60.0
MEMORY_BYTES = 8 << 30

PER_WORKER = 8
"""Cases that a worker is given before their outcomes are handed on."""


@dataclass(frozen=True)
class Attempt(Job):
    """Attempt the case called ``name``."""

    name: str


class CaseHandler(Handler):
    """Attempts cases, ``tuned`` or not."""

    def __init__(self, tuned: bool) -> None:
        self._tuned = tuned
        self._cases = {case.name: case for case in node_cases()}

    def answer(self, job: Attempt) -> Outcome:
        """The outcome of one case."""
        began = time.perf_counter()
        outcome = attempt(self._cases[job.name], self._tuned)
        return replace(outcome, seconds=round(time.perf_counter() - began, 2))


def outcomes(cases: Sequence[Case], tuned: bool, jobs: int) -> Iterator[Outcome]:
    """The outcome of every case, in order, ``jobs`` at a time."""
    with ForkServerProcess() as server:
        pool = WorkerPool(server, Start(HANDLER, tuned), jobs)
        for start in range(0, len(cases), PER_WORKER * jobs):
            batch = cases[start : start + PER_WORKER * jobs]
            answers = pool.run([Attempt(case.name, timeout_s=LIMIT_S, memory_bytes=MEMORY_BYTES) for case in batch])
            for case, answer in zip(batch, answers, strict=True):
                yield _after_loss(case, answer) if isinstance(answer, Lost) else answer


def _after_loss(case: Case, lost: Lost) -> Outcome:
    kind = "hang" if lost.error == "timeout" else "crash"
    outcome = Outcome(case.name, case.operator, kind, lost.message, bool(case.constants))
    return replace(outcome, seconds=round(lost.spent_s, 2))
