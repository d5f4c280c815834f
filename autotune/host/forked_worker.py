"""ForkedWorker: answers requests about foreign data in a fork of this process, which may crash or hang without harm.

A ``WorkerPool`` starts from a server that has to load TVM first, which takes some 2 s. A fork has loaded what this
process has, and costs milliseconds. It runs no compiled kernel, so it needs none of the threads that a fork does not
inherit.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from autotune.host.process_limits import cap_memory, cause_of_death, isolate, keep_what_is_loaded
from schedules.vocabulary.errors import AutotuneError, named_last_line

ANSWER_S = 10.0
"""Wall-clock limit of one answer; reading a program takes milliseconds. Heuristic, not measured."""

PATIENCE_S = 60.0
"""Wall-clock seconds that requests without an answer may take together; no more requests are made then."""

MEMORY_BYTES = 1 << 30
"""By how much the worker's address space may grow. Heuristic, not measured."""


class ForkedWorker:
    """A fork that is started with the first request, killed when it hangs, and replaced when it dies.

    Args:
        answer: request → answer, both picklable; called in the fork.
        error: what is raised where the fork gives no answer, or ``answer`` raises an error that is none of ours.
    """

    def __init__(
        self,
        answer: Callable[[Any], Any],
        error: type[AutotuneError],
        timeout_s: float = ANSWER_S,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._answer = answer
        self._error = error
        self._timeout_s = timeout_s
        self._memory_bytes = memory_bytes
        self._lost_s = 0.0
        self._connection: Connection | None = None
        self._end: weakref.finalize[..., Any] | None = None

    def request(self, content: object) -> Any:
        """The answer to ``content``.

        Raises:
            AutotuneError: what ``answer`` raises; of the type given, in one line, if the fork dies or hangs.
        """
        if self._lost_s > PATIENCE_S:
            raise self._error("it was not read: others before it crashed or hung the process that reads them")
        began = time.monotonic()
        value: Any
        try:
            connection = self._running()
            connection.send(content)
            in_time = connection.poll(self._timeout_s)
            answered, value = connection.recv() if in_time else (False, None)
        except (EOFError, OSError):
            answered, in_time = False, True
            status = self.close()
            value = self._error(f"reading it crashed ({'it ended' if status is None else cause_of_death(status)})")
            self._lost_s += time.monotonic() - began
        if not in_time:
            self.close()
            value = self._error(f"reading it did not end within {self._timeout_s:g} s")
            self._lost_s += time.monotonic() - began
        if not answered:
            raise value
        return value

    def close(self) -> int | None:
        """End the fork; its ``waitpid`` status, or None where there was none. A later request starts another."""
        status = None if self._end is None else self._end()
        self._connection, self._end = None, None
        return status

    def _running(self) -> Connection:
        if self._connection is None:
            ours, theirs = multiprocessing.Pipe()
            pid = os.fork()
            if pid == 0:
                self._serve(theirs)
            theirs.close()
            self._connection = ours
            self._end = weakref.finalize(self, _ended, pid, ours)
        return self._connection

    def _serve(self, connection: Connection) -> NoReturn:
        """Answer until the other end is closed; the fork ends here."""
        try:
            isolate()
            keep_what_is_loaded()
            _close_all_but(connection.fileno())
            cap_memory(self._memory_bytes)
            logging.disable()
            while True:
                connection.send(self._outcome(connection.recv()))
        finally:
            os._exit(0)

    def _outcome(self, content: object) -> tuple[bool, Any]:
        try:
            return True, self._answer(content)
        except AutotuneError as error:
            return False, error
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, MemoryError) as error:
            return False, self._error(named_last_line(error, 300))  # as TVM's parsers and ours fail on foreign data


def _ended(pid: int, connection: Connection) -> int | None:
    """End the fork ``pid``; its ``waitpid`` status."""
    connection.close()
    with suppress(ProcessLookupError, ChildProcessError):
        finished, status = os.waitpid(pid, os.WNOHANG)
        if not finished:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
        return status
    return None


def _close_all_but(handle: int) -> None:
    """Close what was inherited: the ends of other workers' pipes must close when this process closes its own."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != handle:
            with suppress(OSError):
                os.close(int(name))
