"""The process that all workers are forked from: ``python -m autotune.measure.fork_server FD`` with the settings on FD.

It imports TVM once and builds one small kernel, so a worker starts in milliseconds with everything warm, and runs no
candidate itself, so it can always tell what its children died of. It starts no thread before a fork.

Nothing outlives the measuring process: its end of the socket closes when it dies, however it dies; the nursery then
kills and reaps its children, removes the directory and ends. A worker whose nursery died is killed by the kernel.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

from autotune.backends.cuda.cuda_handler import CudaDesk
from autotune.measure.kernel_builder import Lowering
from autotune.measure.kernel_timing import compile_producer
from autotune.measure.messages import Settings
from autotune.measure.remote.rpc_timing import RemoteDesk
from autotune.measure.worker import Desk, serve

MESSAGE_BYTES = 65536
PR_SET_PDEATHSIG = 1


class Nursery:
    """Forks workers on demand and says what they died of.

    Requests, one JSON object per datagram: ``{"spawn": name}`` with the worker's end of its connection attached;
    ``{"end": name}``, answered with ``{"ended": name, "status": waitpid status}`` once the worker is dead and reaped.
    """

    def __init__(self, control: socket.socket, settings: Settings) -> None:
        self._control = control
        self._settings = settings
        lowering = cast(Lowering, importlib.import_module(settings.lowering))
        if settings.target.kind == "cuda":
            self._desk: Desk = CudaDesk(settings, lowering)
        else:
            desk = RemoteDesk if settings.device else Desk
            self._desk = desk(settings, lowering, compile_producer(settings.target))
        self._children: dict[str, int] = {}
        gc.collect()
        gc.freeze()  # shared pages stay shared

    def run(self) -> None:
        """Serve until the measuring process closes its end or dies."""
        while True:
            data, handles, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 1)
            if not data:
                break
            request = json.loads(data)
            if "spawn" in request:
                self._spawn(request["spawn"], handles[0])
            else:
                self._control.send(json.dumps({"ended": request["end"], "status": self._end(request["end"])}).encode())
        for name in list(self._children):
            self._end(name)
        shutil.rmtree(self._settings.directory, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)  # linkers that a killed worker left, and this process

    def _spawn(self, name: str, handle: int) -> None:
        pid = os.fork()
        if pid:
            self._children[name] = pid
            os.close(handle)
            return
        status = 1
        try:
            self._control.close()
            self._settle(name)
            serve(Connection(handle), self._desk, self._settings.memory_bytes)
            status = 0
        except BaseException:  # os._exit prints nothing
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def _settle(self, name: str) -> None:
        """Make this new child a worker: mortal, with a log of its own."""
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        log = os.open(Path(self._settings.directory) / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)

    def _end(self, name: str) -> int:
        pid = self._children.pop(name)
        os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]


def main() -> None:
    """Entry point of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    Nursery(control, Settings.from_json(control.recv(MESSAGE_BYTES).decode())).run()


if __name__ == "__main__":
    main()
