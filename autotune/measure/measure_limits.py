"""Limits of what measuring candidates may take, where they run, and what several measurers share."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.host.worker_pool import ONE_THREAD, ForkServerProcess
from autotune.measure.machine_lock import MachineLock
from schedules.target import Target
from schedules.task import Task

RUN_FLOOR_S = 3.0
"""Seconds that a candidate's check and timing may take at least. Heuristic, not measured."""

RUN_PER_UNTUNED = 50.0
"""Untuned latencies that they may take on top: ``Adaptive`` stops a slow candidate after a few runs. Heuristic."""

PREPARED_BYTES_PER_S = 100e6
"""Bytes of inputs that a fresh worker makes per second at least; that time comes on top too. Heuristic."""


@dataclass(frozen=True)
class RemoteTarget:
    """A device other than this machine's CPU, for which this machine builds: a GPU, or a machine reached by RPC.

    Attributes:
        handler: import path of the handler that builds and runs kernels for it; see ``ForkServerProcess``.
        device: how the handler finds it: ``cuda:1``, or HOST:PORT:KEY of an RPC tracker; empty if there is only one.
        cores: where to pin the target's threads there.
        memory_bytes: its memory.
        slack_s: what a job may take beyond its limit, which the device itself enforces.
        forks: whether a forked process can use it; see ``fork_server.py`` for CUDA.
    """

    handler: str
    device: str
    cores: tuple[int, ...]
    memory_bytes: int
    slack_s: float = 0.0
    forks: bool = True


@dataclass(frozen=True)
class MeasureLimits:
    """Limits of time and memory for a candidate.

    Attributes:
        compile_s: wall-clock limit of one build; an ordinary one takes 0.1 s, the longest seen 0.4 s.
        run_s: upper bound of the wall-clock limit of one candidate's check and timing together; the limit itself
            follows from the untuned build's latency.
        memory_bytes: how much a worker may grow; None takes a quarter of the memory of the machine that runs it.
    """

    compile_s: float = 6.0
    run_s: float = 60.0
    memory_bytes: int | None = None

    def of_run(self, task: Task, untuned_s: float) -> float:
        """Wall-clock limit of one candidate, in seconds: a kernel that never ends must not cost much of a budget."""
        return min(self.run_s, RUN_FLOOR_S + RUN_PER_UNTUNED * untuned_s + task.bytes / PREPARED_BYTES_PER_S)


@dataclass(frozen=True)
class Shared:
    """The lock and the server that several measurers share.

    Attributes:
        lock: of this machine, if others measure on it; None for one that nobody else has.
        server: of the run, which workers are forked from; None starts one for each measurer.
    """

    lock: MachineLock | None = None
    server: ForkServerProcess | None = None


def kernel_variables(target: Target) -> dict[str, str]:
    """Environment of processes that run kernels: the target's threads for kernels, none of its own for NumPy."""
    return {"TVM_NUM_THREADS": str(target.threads), **ONE_THREAD}


MEMORY_SHARE = 4
"""A worker may take this part of a machine's memory, so that a builder per core and what else runs have the rest.
Heuristic, not measured."""

REFERENCE_TIMEOUT_S = 120.0
"""Wall-clock limit of the untuned build and of its run. They may take a hundred times as long as a candidate's, and
without them there is nothing to check candidates against. Heuristic, not measured."""

COPIES = 16
"""How many times a task's data checking and timing may hold at once: inputs, live copies, arenas, bounds. Generous;
these bytes come on top of what the candidate itself may take."""
