"""What one worker process does: take a job, answer, until the other end is closed.

A worker either builds or runs. It never decides about time limits; it is killed when it exceeds one.
"""

from __future__ import annotations

import resource
from multiprocessing.connection import Connection
from pathlib import Path

from autotune.measure.kernel_builder import Builder, Lowering
from autotune.measure.kernel_timing import Bench, Kernel
from autotune.measure.messages import READY, Broken, BuildJob, Job, ReferenceJob, Reply, Settings, TimeJob

COPIES = 16
"""Of a task's data that checking and timing may hold at once, generously: inputs, live copies, arenas, bounds."""


IDLE_S = 3.0
"""Without a job for so long, a worker lets go of what others might use."""


class Desk:
    """Answers jobs; the bench is set up at the first job that runs something.

    Args:
        settings: the measurer's.
        lowering: how configs apply to programs.
        producer: see ``timing.compile_producer``.
    """

    def __init__(self, settings: Settings, lowering: Lowering, producer: Kernel) -> None:
        self._settings = settings
        self._lowering = lowering
        self._builder = Builder(settings.target, lowering)
        self._producer = producer
        self._bench: Bench | None = None

    def answer(self, job: Job) -> Reply | Broken:
        """Do one job."""
        if isinstance(job, BuildJob):
            return self._builder.build(job)
        if self._bench is None:
            self._bench = Bench(self._settings, self._lowering, self._producer)
        if isinstance(job, ReferenceJob):
            return self._bench.reference(job)
        return self._bench.time(job)

    def rest(self) -> None:
        """Let go of what others might use; called when no job has come for a while."""


def cap_memory(grow_bytes: int) -> None:
    """Let this process's address space grow by no more than ``grow_bytes`` from here on."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + grow_bytes
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def spare_bytes(job: Job) -> int:
    """What a job's inputs, their copies and the reference may take: they do not count as the candidate's."""
    if isinstance(job, BuildJob):
        return 0
    arena = job.cold_bytes if isinstance(job, TimeJob) else 0
    return COPIES * job.task.bytes + 2 * arena


def serve(connection: Connection, desk: Desk, grow_bytes: int) -> None:
    """Answer jobs until the connection ends; each may let this process grow by ``grow_bytes``."""
    connection.send(READY)
    while True:
        if not connection.poll(IDLE_S):
            desk.rest()
        try:
            job = connection.recv()
        except EOFError:
            return
        cap_memory(grow_bytes + spare_bytes(job))
        connection.send(desk.answer(job))
