"""TVM's own RPC tracker and servers, started for real on loopback, and ended with everything they started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tvm import rpc

START_S = 60.0


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started; a test may have done so already."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def started(module: str, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """``python -m module arguments``, in a process group of its own."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        end(process)


@contextmanager
def tracker(folder: Path) -> Iterator[int]:
    """A tracker; the port it listens on."""
    port = free_port()
    place = ("--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 1))
    with started("tvm.exec.rpc_tracker", folder / "tracker.log", *place):
        _await(lambda: socket.create_connection(("127.0.0.1", port), 1).close(), folder / "tracker.log")
        yield port


@contextmanager
def device(folder: Path, port: int, key: str, number: int = 1) -> Iterator[subprocess.Popen[bytes]]:
    """A server that the tracker knows under ``key``, as its ``number``-th."""
    own = free_port()
    place = ("--host", "127.0.0.1", "--port", str(own), "--port-end", str(own + 1))
    log = folder / f"{key}-{number}.log"
    with started("tvm.exec.rpc_server", log, *place, "--tracker", f"127.0.0.1:{port}", "--key", key) as process:

        def known() -> None:
            session = rpc.connect_tracker("127.0.0.1", port)
            count = [info["key"] for info in session.summary()["server_info"]].count(f"server:{key}")
            if count < number:
                raise OSError(f"{count} devices are known")

        _await(known, log)
        yield process


def _await(look: object, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            look()  # type: ignore[operator]
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"it did not start: {log.read_text()}") from error
            time.sleep(0.1)
        else:
            return
