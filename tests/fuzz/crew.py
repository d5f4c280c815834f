"""Fuzzing in a process that may crash or hang: it is killed after its time and another one goes on."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection

from autotune.host.machine import host_target
from autotune.measure.worker import cap_memory
from tests.fuzz.engine import Found, examine
from tests.fuzz.graphs import random_model

LIMIT_S = 60.0
"""Wall-clock seconds of one stage of one graph; ordinary ones take tenths."""

START_S = 120.0
MEMORY_BYTES = 6 << 30


def serve(connection: Connection) -> None:
    """Examine seeds until the connection ends."""
    cap_memory(MEMORY_BYTES)
    target = host_target()  # once: a run may leave this thread pinned to a core
    connection.send("ready")
    while True:
        try:
            seed = connection.recv()
        except EOFError:
            return
        try:
            found = examine(random_model(seed), seed, connection.send, target)
        except Exception as error:  # a bug, whichever it is: the report says where
            last = traceback.extract_tb(error.__traceback__)[-1]
            text = " ".join(str(error).split())
            where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
            found = Found(seed, "error", where, f"{type(error).__name__}: {text[:200]} … {text[-300:]}")
        connection.send(found)


class Worker:
    """One process that examines seeds."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._receive(START_S)

    def close(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.join()

    def examine(self, seed: int) -> Found:
        """What became of ``seed``; afterwards the process may be gone (``alive``)."""
        self._connection.send(seed)
        stage = "import"
        while True:
            try:
                answer = self._receive(self._limit_s)
            except EOFError:
                return Found(seed, "crash", stage, f"exit code {self._process.exitcode}")
            except TimeoutError:
                # A random config may compile for long; a measurer would have given it up after its own limit.
                outcome = "slow build" if stage == "build tuned" else "hang"
                return Found(seed, outcome, stage, f"more than {self._limit_s:g} s")
            if isinstance(answer, Found):
                return answer
            stage = str(answer)

    def _receive(self, limit_s: float) -> object:
        if not self._connection.poll(limit_s):
            self._process.kill()
            raise TimeoutError
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            raise EOFError from None

    @property
    def alive(self) -> bool:
        return self._process.is_alive()


def fuzz(seeds: Iterable[int], limit_s: float = LIMIT_S) -> Iterator[Found]:
    """What became of every seed, in order."""
    worker: Worker | None = None
    try:
        for seed in seeds:
            if worker is None:
                worker = Worker(limit_s)
            found = worker.examine(seed)
            yield found
            if found.outcome in ("crash", "hang", "slow build"):
                worker.close()
                worker = None
    finally:
        if worker is not None:
            worker.close()
