"""Jobs in worker processes that may crash, hang or take too much memory: the caller's side of ``fork_server.py``.

Everything here that needs a process of its own uses this pool: kernels are built and timed in it, and so are engines,
traces of other programs, CUDA code and RPC devices handled. Only the import of a model forks the caller itself, see
``importer/guarded_import.py``.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autotune.host.fork_server import Job, Refused, Start, env_program
from autotune.host.process_limits import cause_of_death, is_out_of_memory, log_tail, signal_of
from schedules.vocabulary.errors import MeasureError
from tuning_logs.measurement import ErrorKind

log = logging.getLogger(__name__)

START_TIMEOUT_S = 180.0
"""A worker that has not started by then will not. Importing TVM takes about 2 s on an idle machine, and many times that
on an overloaded one."""

END_TIMEOUT_S = 5.0
"""The fork server ends within milliseconds; after so many seconds it is killed."""

ONE_THREAD = MappingProxyType({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})
"""Environment of processes that run kernels: NumPy gets no threads of its own."""

TRIES = 2
"""Workers that a job gets: an earlier job may have left behind what killed the first one."""


@dataclass(frozen=True)
class Lost:
    """A job whose worker died or had to be killed.

    Attributes:
        spent_s: wall-clock seconds that it ran.
    """

    error: ErrorKind
    message: str
    spent_s: float


@dataclass
class Worker:
    """One worker process as seen from here.

    Attributes:
        pid: its process id; 0 until it has started.
    """

    name: str
    connection: Connection
    pid: int = 0


class ForkServerProcess(AbstractContextManager["ForkServerProcess"]):
    """A fork server, which is started with the first worker; workers of any handler can be requested.

    Args:
        directory: an existing folder for logs, removed with the server; None makes a temporary one.
        variables: environment variables that must be set before any handler's module is imported.

    Attributes:
        directory: that folder; what jobs write may lie in it too.
    """

    def __init__(self, directory: Path | None = None, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        self.directory = directory or Path(tempfile.mkdtemp(prefix="tune-"))
        self._variables = variables
        self._log = self.directory / "fork-server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._count = 0
        self._starts: list[Start] = []
        self._newest: Worker | None = None
        self._kept: list[tuple[tuple[Start, bool], WorkerPool]] = []

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(self) -> None:
        """Start the process, without waiting for it."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join(path for path in sys.path if path)
        command = [env_program(), f"PYTHONPATH={path}"]
        command += [f"{name}={value}" for name, value in self._variables.items()]
        with theirs, self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *command,
                    sys.executable,
                    "-m",
                    "autotune.host.fork_server",
                    str(theirs.fileno()),
                    str(self.directory),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C at the terminal is for the calling process alone
            )
        self._control.settimeout(START_TIMEOUT_S)

    def spawn(self, start: Start, fresh: bool = False) -> Worker:
        """Request a worker; it sends its process id on its connection when it has started.

        Args:
            start: its handler; workers of equal ones share what that loads.
            fresh: whether it must not be a fork; see ``fork_server.py``.
        """
        if self._closed:
            raise MeasureError("the process that starts workers is gone: it was ended")
        if self._process is None:
            self._run()
        if start not in self._starts:
            (self.directory / _file(len(self._starts))).write_bytes(pickle.dumps(start))
            self._starts.append(start)
        file = _file(self._starts.index(start))
        self._count += 1
        name = f"worker-{self._count}"
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            self._request({"spawn": name, "start": file, "fresh": fresh}, theirs.fileno())
        self._newest = Worker(name, ours)
        return self._newest

    def kept(self, start: Start, fresh: bool = False) -> WorkerPool:
        """Return the pool of one worker, with one try, that all who ask for an equal ``start`` share."""
        known = next((pool for at, pool in self._kept if at == (start, fresh)), None)
        if known is None or not known.workers:  # it was closed
            known = WorkerPool(self, start, 1, tries=1, fresh=fresh)
            self._kept = [((start, fresh), known), *(entry for entry in self._kept if entry[0] != (start, fresh))]
        return known

    def end(self, worker: Worker) -> tuple[int, str]:
        """Kill and reap a worker.

        Returns:
            Its ``waitpid`` status, and the end of its log.
        """
        worker.connection.close()
        self._request({"end": worker.name})
        status = None
        while status is None:  # an interrupted call may have left an answer about another worker behind
            answer = self._answer()
            status = answer["status"] if answer["ended"] == worker.name else None
        path = self.directory / f"{worker.name}.log"
        written = log_tail(path)
        path.unlink(missing_ok=True)
        return int(status), written

    def _request(self, request: dict[str, str | bool], *handles: int) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], handles)
        except OSError as error:
            raise MeasureError(f"the process that starts workers is gone: {self.log_end()}") from error

    def _answer(self) -> dict[str, Any]:
        try:
            data = self._control.recv(4096)
        except OSError:
            data = b""
        if not data:
            raise MeasureError(f"the process that starts workers is gone: {self.log_end()}")
        answer: dict[str, Any] = json.loads(data)
        return answer

    def log_end(self) -> str:
        """The end of what the server wrote."""
        return log_tail(self._log) or "it wrote nothing"

    def _is_loading(self) -> bool:
        """Return whether the server may still import a handler: the newest worker has not started."""
        newest = self._newest
        return newest is None or not (newest.pid or newest.connection.closed or newest.connection.poll())

    def close(self) -> None:
        """End the server, its workers and the directory; safe to call twice."""
        if self._process is not None and not self._closed:
            self._end(self._process)
        self._closed = True
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self._control.close()
        if self._is_loading():  # it would notice the end only afterwards; the kernel ends its workers with it
            os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _file(number: int) -> str:
    """File of a ``Start`` in a server's directory."""
    return f"start-{number}.pickle"


@dataclass
class PendingJob:
    """A job that a worker is doing."""

    index: int
    job: Job
    started_s: float
    tries: int


class WorkerPool:
    """Workers of one fork server that share a queue of jobs.

    Args:
        server: where workers come from.
        start: their handler.
        size: how many workers.
        tries: how many workers a job may cost before it is lost.
        fresh: whether workers must not be forks; see ``fork_server.py``.

    Attributes:
        workers: they are replaced as they die.
    """

    def __init__(
        self, server: ForkServerProcess, start: Start, size: int, tries: int = TRIES, fresh: bool = False
    ) -> None:
        self._server = server
        self._start = start
        self._tries = tries
        self._fresh = fresh
        self.workers = [server.spawn(start, fresh) for _ in range(size)]

    def close(self) -> None:
        """End the workers, as far as their server has not; safe to call twice."""
        while self.workers:
            with suppress(MeasureError):  # the server is gone, and they with it
                self._server.end(self.workers.pop())

    def run(self, jobs: Sequence[Job]) -> list[Any]:
        """Every job's answer, or ``Lost``, in order.

        A job that exceeds its time limit is lost at once. One whose worker dies is given to a fresh worker.

        Raises:
            MeasureError: if no worker can be started.
            AutotuneError: what a handler answered as ``Refused``.
        """
        queue = deque(PendingJob(i, job, 0.0, 0) for i, job in enumerate(jobs))
        answers: dict[int, Any] = {}
        busy: dict[str, PendingJob] = {}
        try:
            while queue or busy:
                for worker in self.workers:
                    if queue and worker.name not in busy:
                        self.await_start(worker)
                        pending = queue.popleft()
                        busy[worker.name] = pending
                        self._send(worker, pending)
                self._collect(busy, queue, answers)
        except BaseException:  # Ctrl-C too: nobody will receive the answers of the busy workers any more
            for position, worker in enumerate(self.workers):
                if worker.name in busy:
                    self._replace(position)
            raise
        return [answers[i] for i in range(len(jobs))]

    def await_start(self, worker: Worker) -> None:
        """Wait until a worker has started.

        Raises:
            MeasureError: if it cannot.
        """
        if worker.pid:
            return
        try:
            if not worker.connection.poll(START_TIMEOUT_S):
                raise MeasureError(
                    f"no worker started within {START_TIMEOUT_S:.0f} s; see whether the machine is overloaded"
                )
            worker.pid = worker.connection.recv()
        except (EOFError, OSError) as error:
            raise MeasureError(f"a worker died at its start: {self._server.log_end()}") from error

    def _send(self, worker: Worker, pending: PendingJob) -> None:
        pending.started_s = time.monotonic()
        pending.tries += 1
        try:
            worker.connection.send(pending.job)
        except OSError:
            log.debug("%s had ended before its job; that is noticed next", worker.name)

    def _collect(self, busy: dict[str, PendingJob], queue: deque[PendingJob], answers: dict[int, Any]) -> None:
        """Wait for the first answer, death or exceeded limit, and take in all that there are."""
        now = time.monotonic()
        first = min(pending.started_s + pending.job.timeout_s for pending in busy.values())
        active = {w.connection: position for position, w in enumerate(self.workers) if w.name in busy}
        heard = wait(list(active), max(0.0, first - now))
        for connection, position in active.items():
            pending = busy[self.workers[position].name]
            limit = pending.started_s + pending.job.timeout_s
            if connection not in heard and time.monotonic() < limit:
                continue
            del busy[self.workers[position].name]
            try:
                if connection in heard:
                    answer = self.workers[position].connection.recv()
                    if isinstance(answer, Refused):
                        raise answer.error
                    answers[pending.index] = answer
                    continue
            except (EOFError, OSError):
                lost = self._after_death(position, pending)
            else:
                self._replace(position)
                message = f"not done within {pending.job.timeout_s:g} s"
                lost = Lost("timeout", message, pending.job.timeout_s)
            if lost.error == "worker_died" and pending.tries < self._tries:
                queue.appendleft(pending)
            else:
                answers[pending.index] = lost

    def _after_death(self, position: int, pending: PendingJob) -> Lost:
        status, written = self._replace(position)
        hint = " (perhaps by the system, for want of memory)" if signal_of(status) == signal.SIGKILL else ""
        kind: ErrorKind = "out_of_memory" if is_out_of_memory(written) else "worker_died"
        message = f"the worker died of {cause_of_death(status)}{hint}" + (f": {written}" if written else "")
        return Lost(kind, message, time.monotonic() - pending.started_s)

    def _replace(self, position: int) -> tuple[int, str]:
        """End the worker there and request a fresh one; how the old one ended."""
        end = self._server.end(self.workers[position])
        self.workers[position] = self._server.spawn(self._start, self._fresh)
        return end


def run_alone(handler: str, settings: object, job: Job) -> Any:
    """The answer of one job, or ``Lost``, in a fork server that is started for it and ended afterwards.

    Raises:
        AutotuneError: as ``WorkerPool.run``.
    """
    with ForkServerProcess() as server:
        return WorkerPool(server, Start(handler, settings), 1, tries=1).run([job])[0]
