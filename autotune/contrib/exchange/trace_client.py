"""TraceClient: reads and writes MetaSchedule's JSON in a worker process, and survives whatever becomes of that."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from autotune.host.fork_server import Job, Start
from autotune.host.worker_pool import ForkServerProcess, Lost, WorkerPool
from schedules.vocabulary.errors import LogError, MeasureError

HANDLER = "autotune.contrib.exchange.trace_worker:TraceHandler"

ANSWER_TIMEOUT_S = 30.0
"""Wall-clock limit of one record; replaying a trace takes milliseconds. Heuristic, not measured."""

PATIENCE_S = 120.0
"""Wall-clock seconds that records without an answer may take together; the rest is refused unread."""

MEMORY_BYTES = 2 << 30
"""By how much the worker's address space may grow. Heuristic, not measured."""


@dataclass(frozen=True)
class TraceJob(Job):
    """One request, as in the docstring of ``trace_worker``."""

    request: dict[str, Any]


class TraceClient(AbstractContextManager["TraceClient"]):
    """The worker process; it is started at once, so that TVM is loaded while the first record is read.

    Args:
        timeout_s: how long an answer may take.
    """

    def __init__(self, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._lost_s = 0.0
        self._server = ForkServerProcess()
        self._pool = WorkerPool(self._server, Start(HANDLER, None), 1, tries=1)

    def __exit__(self, *exc: object) -> None:
        self._server.close()

    def request(self, **content: object) -> dict[str, Any]:
        """The answer of ``TraceHandler``; ``{"error": …}`` too where the worker died or had to be killed.

        Raises:
            LogError: if no worker starts.
        """
        if self._lost_s > PATIENCE_S:
            return {"error": "it was not read: others before it crashed or hung TVM's parser"}
        began = time.monotonic()
        try:
            (answer,) = self._pool.run([TraceJob(content, timeout_s=self._timeout_s, memory_bytes=MEMORY_BYTES)])
        except MeasureError as error:
            raise LogError(f"the process that reads MetaSchedule's JSON does not start: {error}") from error
        if not isinstance(answer, Lost):
            reply: dict[str, Any] = answer
            return reply
        self._lost_s += time.monotonic() - began
        if answer.error == "timeout":
            return {"error": f"TVM's parser did not end within {self._timeout_s:.0f} s"}
        return {"error": f"TVM's parser crashed: {answer.message}"[:300]}
