"""The child process that tunes for a session: how it is started, told of sizes, and ended.

It ends with the thread that started it, by the kernel's doing, and when its standard input is closed. So it never
outlives this process, however that ends.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from autotune.host.process_limits import log_tail
from autotune.host.shared_files import private_folder

logger = logging.getLogger(__name__)

MODULE = "autotune.tuning.background.background_tuner"

RESTARTS = 6
"""Failures in a row after which no other process is started."""

WAIT_S = 1.0
"""Seconds until the first restart; each later one waits twice as long as the one before."""

IDLE, ENDED = "idle", "ended"
"""States: nothing is left to tune; the session was closed."""


class TunerProcess:
    """Starts a process when there is something to tune. For one thread, which has to live as long as the process may.

    Args:
        settings: of ``background_tuner.Settings``, without the parent.
        log: file for what the process prints.

    Attributes:
        state: what the process does, or why there is none, in words.
    """

    def __init__(self, settings: Mapping[str, Any], log: Path) -> None:
        self._settings, self._log = dict(settings), log
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""
        self._sent: list[list[Any]] = []
        self._taken = 0
        self._failures, self._not_before = 0, 0.0
        self.state = IDLE

    @property
    def pid(self) -> int | None:
        """The process's id; None while there is none."""
        return None if self._process is None else self._process.pid

    @property
    def has_given_up(self) -> bool:
        """Whether no other process will be started."""
        return self._failures >= RESTARTS

    def offer(self, sizes: Sequence[Any]) -> bool:
        """Ask for kernels for ``sizes``, plain data; whether a process was told."""
        if self._process is None and (self.has_given_up or time.monotonic() < self._not_before):
            return False
        try:
            if self._process is None:
                self._start()
            self._send(list(sizes))
        except OSError as error:
            self._fail(f"it cannot be started ({error})")
            return False
        return True

    def listen(self) -> list[Any]:
        """Read what the process says, and notice its end; sizes that were offered in vain and may be offered again."""
        process = self._process
        if process is None:
            return []
        ended = process.poll() is not None
        assert process.stdout is not None
        with suppress(BlockingIOError):
            while data := os.read(process.stdout.fileno(), 1 << 16):
                self._heard += data
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "state":
                self.state = rest
            elif word == "built":
                self._failures = 0
            elif word == "failed":
                self._failures += 1
                self.state = rest
            elif word == "done":
                self._taken = int(rest)
        if not ended:
            return []
        self._close()
        if process.returncode == 0 and self.state == IDLE:
            return self._sent[self._taken :]
        if process.returncode == 0:  # it has said why
            self._not_before = time.monotonic() + WAIT_S * 2**self._failures
            return self._sent
        self._fail(f"it ended with status {process.returncode} {log_tail(self._log)}".rstrip())
        return self._sent

    def end(self) -> None:
        """End the process and all that it started; none is started again."""
        self._failures, self.state = RESTARTS, ENDED
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._close()

    def forget(self) -> None:
        """Leave the process to this one's parent, in the child of a fork: its input must not stay open here."""
        if self._process is not None:
            self._process.returncode = 0  # it is not ours to wait for
            self._close()

    def _start(self) -> None:
        private_folder(self._log.parent)  # somebody may have removed it
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._heard, self._sent, self._taken = b"", [], 0
        self._write({**self._settings, "parent": os.getpid()})

    def _send(self, sizes: list[Any]) -> None:
        self._write(sizes)
        self._sent.append(sizes)

    def _write(self, data: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(data).encode() + b"\n")
        self._process.stdin.flush()

    def _fail(self, why: str) -> None:
        self._failures += 1
        self._not_before = time.monotonic() + WAIT_S * 2**self._failures
        self.state = f"the tuner failed: {why}" + ("; it is not started again" if self.has_given_up else "")
        logger.log(logging.WARNING if self.has_given_up else logging.INFO, "%s", self.state)
        self._close()

    def _close(self) -> None:
        process, self._process = self._process, None
        for stream in () if process is None else (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
