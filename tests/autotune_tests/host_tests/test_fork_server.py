"""The loop of a worker, and that no worker survives its server."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing import Pipe

import psutil

from autotune.host import fork_server
from autotune.host.fork_server import Handler, Start, serve
from autotune.host.worker_pool import ForkServerProcess, WorkerPool
from tests.autotune_tests.host_tests.faulty_handler import HANDLER, FaultyHandler, FaultyJob


def test_a_worker_sends_its_id_then_answers_until_the_end() -> None:
    ours, theirs = Pipe()
    thread = threading.Thread(target=serve, args=(theirs, FaultyHandler("settings")))
    thread.start()
    assert ours.recv() == os.getpid()
    for _ in range(2):
        ours.send(FaultyJob())
        assert ours.recv() == (os.getpid(), "settings")
    ours.close()
    thread.join(10)
    assert not thread.is_alive()


class Resting(Handler):
    def __init__(self) -> None:
        self.rested = threading.Event()

    def rest(self) -> None:
        self.rested.set()


def test_a_handler_without_jobs_rests(monkeypatch) -> None:
    monkeypatch.setattr(fork_server, "IDLE_S", 0.01)
    ours, theirs = Pipe()
    handler = Resting()
    thread = threading.Thread(target=serve, args=(theirs, handler))
    thread.start()
    assert handler.rested.wait(10)
    ours.close()
    thread.join(10)


def test_workers_end_with_their_server() -> None:
    with ForkServerProcess() as server:
        pool = WorkerPool(server, Start(HANDLER, "settings"), 2)
        pool.run([FaultyJob()] * 2)
        workers = [psutil.Process(worker.pid) for worker in pool.workers if worker.pid]
        os.kill(server._process.pid, signal.SIGKILL)
        assert not psutil.wait_procs(workers, timeout=5)[1]
