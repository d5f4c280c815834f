"""The process that workers are forked from: ``python -m autotune.host.fork_server FD DIRECTORY``.

It serves any number of handlers. It imports and constructs each once, before the first worker that uses it is forked,
so that a worker starts in milliseconds with everything loaded. It runs no job itself and starts no thread before a
fork, so it survives its workers and can report how each of them ended.

CUDA's driver refuses a process that was forked from one in which it was initialised. A worker that uses it is asked for
as *fresh*: the fork replaces itself by a new interpreter, which imports and constructs the handler again.

No process outlives the one that started the server. The server notices the end of its socket, kills and reaps its
workers, removes its directory and ends. The kernel kills the workers of a server that dies.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pickle
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from autotune.host.lean_loading import leave_out_unused
from autotune.host.process_limits import cap_memory, isolate, keep_what_is_loaded
from schedules.vocabulary.errors import AutotuneError

MESSAGE_BYTES = 65536
"""Most bytes of one message on the server's socket."""

IDLE_S = 3.0
"""A worker without a job for so many seconds calls ``Handler.rest``. Heuristic, not measured."""

EXIT_S = 0.02
"""A worker whose connection has closed ends within microseconds; it is killed only after so many seconds, so that the
status is its own and not that of the kill."""


@dataclass(frozen=True)
class Start:
    """A worker's handler and its settings.

    Attributes:
        handler: import path of the handler's class, ``module:Class``.
        settings: its constructor's only argument; it must pickle.
        variables: environment variables of a fresh worker; a fork has those of its server.
    """

    handler: str
    settings: object
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job for a worker; subclasses add the content.

    Attributes:
        timeout_s: wall-clock limit.
        memory_bytes: by how much the worker's address space may grow; None sets no limit.
    """

    timeout_s: float
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Refused:
    """A handler's answer that ``WorkerPool.run`` raises: an error that is no fault of this one job."""

    error: AutotuneError


class Handler:
    """Does the jobs of a worker. It is constructed in the fork server, and used in workers only."""

    def answer(self, job: Any) -> object:
        """Do one job. The answer must pickle; ``Refused`` is raised at the caller's. An exception ends the worker."""
        raise NotImplementedError

    def rest(self) -> None:
        """Release what others may want; called when no job has come for ``IDLE_S``."""


class ForkServer:
    """Forks workers on request and reports how they ended.

    Requests, one JSON object per datagram: ``{"spawn": name, "start": file, "fresh": bool}`` with the worker's end of
    its connection attached and the pickled ``Start`` in a file of the directory; ``{"end": name}``, answered with
    ``{"ended": name, "status": waitpid status}`` once the worker is dead and reaped.

    Args:
        directory: where the logs of the workers are written; removed at the end.
    """

    def __init__(self, control: socket.socket, directory: Path) -> None:
        self._control = control
        self._handlers: dict[str, Handler | None] = {}
        self._directory = directory
        self._children: dict[str, int] = {}

    def run(self) -> None:
        """Serve until the other end of the socket is closed."""
        while True:
            data, handles, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 1)
            if not data:
                break
            request = json.loads(data)
            if "spawn" in request:
                self._spawn(request["spawn"], handles[0], request["start"], request["fresh"])
            else:
                self._control.send(json.dumps({"ended": request["end"], "status": self._end(request["end"])}).encode())
        for name in list(self._children):
            self._end(name)
        shutil.rmtree(self._directory, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)  # linkers that a killed worker left, and this process

    def _spawn(self, name: str, handle: int, start: str, fresh: bool) -> None:
        if not fresh:  # a fresh worker that is asked for first starts meanwhile
            self._construct(start)
        pid = os.fork()
        if pid:
            self._children[name] = pid
            os.close(handle)
            return
        status = 1
        try:
            self._control.close()
            isolate(self._directory / f"{name}.log")
            if fresh:
                self._replace_by_fresh(handle, start)
            handler = self._handlers[start]
            if handler is not None:  # else the log of the server says why it could not be constructed
                serve(Connection(handle), handler)
                status = 0
        except BaseException:  # whatever ends the worker: os._exit prints nothing, and the log must say why
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def _construct(self, start: str) -> None:
        """Construct the handler of ``start``, if that was not tried yet; other handlers go on if it cannot be."""
        if start in self._handlers:
            return
        handler = None
        try:
            handler = made_handler(self._read(start))
        except Exception:  # whatever stands in its way: its workers end, and the log must say why
            traceback.print_exc()
            sys.stderr.flush()
        self._handlers[start] = handler
        gc.collect()
        keep_what_is_loaded()

    def _read(self, start: str) -> Start:
        settings: Start = pickle.loads((self._directory / start).read_bytes())  # noqa: S301 - from this server's caller
        return settings

    def _replace_by_fresh(self, handle: int, start: str) -> None:
        """Make this process a new interpreter that serves on ``handle``."""
        os.set_inheritable(handle, True)
        variables = [f"{name}={value}" for name, value in self._read(start).variables.items()]
        program = [sys.executable, "-m", "autotune.host.fork_server", str(handle), str(self._directory), start]
        os.execv(env_program(), ["env", *variables, *program])

    def _end(self, name: str) -> int:
        pid = self._children.pop(name)
        deadline = time.monotonic() + EXIT_S
        while time.monotonic() < deadline:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status
            time.sleep(EXIT_S / 20)
        os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]


def env_program() -> str:
    """Return the path of env(1), which adds variables: the library reads no environment itself."""
    return shutil.which("env") or "/usr/bin/env"


def serve(connection: Connection, handler: Handler) -> None:
    """Send this process's id, then answer jobs until the connection ends."""
    connection.send(os.getpid())
    while True:
        if not connection.poll(IDLE_S):
            handler.rest()
        try:
            job = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        if job.memory_bytes is not None:
            cap_memory(job.memory_bytes)
        connection.send(handler.answer(job))


def made_handler(start: Start) -> Handler:
    """The handler of ``start``, imported and constructed."""
    module, _, name = start.handler.partition(":")
    handler: Handler = getattr(importlib.import_module(module), name)(start.settings)
    return handler


def main() -> None:
    """Entry point of the server; with the file of a ``Start`` as third argument, of a fresh worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    leave_out_unused()
    handle, directory, *fresh = sys.argv[1:]
    if fresh:
        start: Start = pickle.loads((Path(directory) / fresh[0]).read_bytes())  # noqa: S301 - from the server
        serve(Connection(int(handle)), made_handler(start))
        return
    ForkServer(socket.socket(fileno=int(handle)), Path(directory)).run()


if __name__ == "__main__":
    main()
