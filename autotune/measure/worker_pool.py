"""The measuring process's side: workers as handles, and the loop that hands them jobs and holds them to limits."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from autotune.measure.kernel_builder import starved
from autotune.measure.messages import READY, Broken, Job, Lost, Reply, Settings
from schedules.errors import MeasureError
from tuning_logs.measurement import ErrorKind

log = logging.getLogger(__name__)

START_TIMEOUT_S = 180.0
"""A worker that has not reported by then will not; imports are slow on a loaded machine."""

END_TIMEOUT_S = 5.0


@dataclass
class Worker:
    """One worker process as seen from here."""

    name: str
    connection: Connection
    ready: bool = False


class NurseryProcess:
    """Starts the nursery without waiting for it; workers can be asked for at once.

    Args:
        settings: sent to it; ``settings.directory`` is removed with it.
    """

    def __init__(self, settings: Settings) -> None:
        self._directory = Path(settings.directory)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log = self._directory / "nursery.log"
        # env(1) sets what must be known before the imports: kernels get the target's threads, NumPy none of its own.
        variables = {
            "TVM_NUM_THREADS": str(settings.target.threads),
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        command = [shutil.which("env") or "/usr/bin/env", *(f"{name}={value}" for name, value in variables.items())]
        with theirs, self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, sys.executable, "-m", "autotune.measure.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C at the terminal is for the measuring process alone
            )
        self._control.settimeout(START_TIMEOUT_S)
        self._control.send(settings.to_json().encode())
        self._count = 0

    def spawn(self) -> Worker:
        """Ask for a worker; it reports ``READY`` on its connection when it is one."""
        self._count += 1
        name = f"worker-{self._count}"
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            self._ask({"spawn": name}, theirs.fileno())
        return Worker(name, ours)

    def end(self, worker: Worker) -> tuple[int, str]:
        """Kill and reap a worker; (waitpid status, its last words)."""
        worker.connection.close()
        self._ask({"end": worker.name})
        status = None
        while status is None:  # an answer that an interrupt left behind is not ours
            answer = self._answer()
            status = answer["status"] if answer["ended"] == worker.name else None
        path = self._directory / f"{worker.name}.log"
        words = tail(path)
        path.unlink(missing_ok=True)
        return int(status), words

    def _ask(self, request: dict[str, str], *handles: int) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], handles)
        except OSError as error:
            raise MeasureError(f"the process that starts workers is gone: {self.last_words()}") from error

    def _answer(self) -> dict[str, Any]:
        try:
            data = self._control.recv(4096)
        except OSError:
            data = b""
        if not data:
            raise MeasureError(f"the process that starts workers is gone: {self.last_words()}")
        answer: dict[str, Any] = json.loads(data)
        return answer

    def last_words(self) -> str:
        """The end of what the nursery wrote."""
        return tail(self._log) or "it said nothing"

    def close(self) -> None:
        """End the nursery, its workers and the directory; safe to call twice."""
        if self._process.returncode is not None:
            return
        self._control.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def tail(path: Path, limit: int = 300) -> str:
    """The telling end of a log: what was said before a stack of frames, else the last lines."""
    if not path.exists():
        return ""
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    said = [line.strip("! ") for line in lines if not line.startswith("File ")]
    return " ".join(said[-3:])[-limit:]


@dataclass
class Flight:
    """A job in a worker's hands."""

    index: int
    job: Job
    started_s: float
    tries: int


@dataclass
class Crew:
    """Workers of one kind that share a queue of jobs.

    Attributes:
        nursery: where they come from.
        size: how many.
    """

    nursery: NurseryProcess
    size: int
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workers = [self.nursery.spawn() for _ in range(self.size)]

    def run(self, jobs: Sequence[Job]) -> list[Reply | Lost]:
        """Every job's answer, in order.

        A job that outlives its limit is lost at once; one whose worker dies gets a second, fresh worker, since what
        killed the first may have been left there by another job.

        Raises:
            MeasureError: if no worker can be started, or one says that it cannot work.
        """
        queue = deque(Flight(i, job, 0.0, 0) for i, job in enumerate(jobs))
        answers: dict[int, Reply | Lost] = {}
        busy: dict[str, Flight] = {}
        try:
            while queue or busy:
                for worker in self.workers:
                    if queue and worker.name not in busy and self._await_ready(worker):
                        flight = queue.popleft()
                        busy[worker.name] = flight
                        self._send(worker, flight)
                self._collect(busy, queue, answers)
        except BaseException:
            for position, worker in enumerate(self.workers):  # what they are at belongs to nobody any more
                if worker.name in busy:
                    self._replace(position)
            raise
        return [answers[i] for i in range(len(jobs))]

    def _await_ready(self, worker: Worker) -> bool:
        if worker.ready:
            return True
        try:
            if not worker.connection.poll(START_TIMEOUT_S):
                raise MeasureError(
                    f"no worker started within {START_TIMEOUT_S:.0f} s; see whether the machine is overloaded"
                )
            worker.ready = worker.connection.recv() == READY
        except (EOFError, OSError) as error:
            raise MeasureError(f"a measuring worker died at its start: {self.nursery.last_words()}") from error
        return worker.ready

    def _send(self, worker: Worker, flight: Flight) -> None:
        flight.started_s = time.monotonic()
        flight.tries += 1
        try:
            worker.connection.send(flight.job)
        except OSError:
            log.debug("%s was gone before its job; its end is collected next", worker.name)

    def _collect(self, busy: dict[str, Flight], queue: deque[Flight], answers: dict[int, Reply | Lost]) -> None:
        """Wait for the first answer, death or exceeded limit, and take in all there are."""
        now = time.monotonic()
        first = min(flight.started_s + flight.job.timeout_s for flight in busy.values())
        active = {w.connection: position for position, w in enumerate(self.workers) if w.name in busy}
        heard = wait(list(active), max(0.0, first - now))
        for connection, position in active.items():
            flight = busy[self.workers[position].name]
            limit = flight.started_s + flight.job.timeout_s
            if connection not in heard and time.monotonic() < limit:
                continue
            del busy[self.workers[position].name]
            try:
                if connection in heard:
                    answer = self.workers[position].connection.recv()
                    if isinstance(answer, Broken):
                        raise MeasureError(answer.message)
                    answers[flight.index] = answer
                    continue
            except (EOFError, OSError):
                lost = self._autopsy(position, flight)
            else:
                self._replace(position)
                message = f"not done within {flight.job.timeout_s:g} s"
                lost = Lost("timeout", message, flight.job.timeout_s)
            if lost.error == "worker_died" and flight.tries == 1:
                queue.appendleft(flight)
            else:
                answers[flight.index] = lost

    def _autopsy(self, position: int, flight: Flight) -> Lost:
        status, words = self._replace(position)
        signalled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        cause = signal.Signals(signalled).name if signalled else f"exit status {os.waitstatus_to_exitcode(status)}"
        hint = " (perhaps by the system, for want of memory)" if signalled == signal.SIGKILL else ""
        kind: ErrorKind = "out_of_memory" if starved(words) else "worker_died"
        message = f"the worker died of {cause}{hint}" + (f": {words}" if words else "")
        return Lost(kind, message, time.monotonic() - flight.started_s)

    def _replace(self, position: int) -> tuple[int, str]:
        """End the worker there and ask for a fresh one; what the old one died of."""
        end = self.nursery.end(self.workers[position])
        self.workers[position] = self.nursery.spawn()
        return end
