"""Clerk: asks a worker process about MetaSchedule's JSON, and survives whatever becomes of it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from types import TracebackType
from typing import Any

from schedules.errors import LogError

START_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 30.0


class Clerk:
    """The worker process, started when first needed and again after it was lost.

    Args:
        timeout_s: how long an answer may take; replaying a trace takes milliseconds.
    """

    def __init__(self, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._tvm = ""

    @property
    def tvm(self) -> str:
        """Version of TVM that answers."""
        if not self._tvm:
            self._start()
        return self._tvm

    def __enter__(self) -> Clerk:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def ask(self, **request: object) -> dict[str, Any]:
        """The worker's answer; ``{"error": …}`` too where it died or had to be killed."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            answer = self._line(process, self._timeout_s)
        except (BrokenPipeError, EOFError):
            status = process.wait()
            self._end()
            return {"error": f"TVM's parser died of it (status {status})"}
        except TimeoutError:
            self._end()
            return {"error": f"TVM's parser did not end within {self._timeout_s:.0f} s"}
        found: dict[str, Any] = json.loads(answer)
        return found

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "autotune.exchange.trace_worker"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._process, self._rest = process, b""
        try:
            self._tvm = str(json.loads(self._line(process, START_TIMEOUT_S))["tvm"])
        except (EOFError, TimeoutError) as error:
            self._end()
            raise LogError(
                "the process that reads MetaSchedule's JSON does not start; "
                "try 'python -m autotune.exchange.trace_worker' to see why"
            ) from error
        return process

    def _line(self, process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
        """The next line of the worker's output."""
        assert process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            read = os.read(process.stdout.fileno(), 1 << 20)
            if not read:
                raise EOFError
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):  # what was still buffered for the dead
                stream.close()  # type: ignore[union-attr]
        self._process = None
