"""A parser that crashes or hangs is replaced, and costs one record."""

from __future__ import annotations

import os
import time

import psutil
import pytest

from autotune.contrib.exchange import trace_client
from autotune.contrib.exchange.trace_client import TraceClient
from autotune.host.fork_server import Handler
from schedules.vocabulary.errors import LogError


class Misbehaving(Handler):
    """A worker that dies of one request and hangs on another."""

    def __init__(self, settings):
        pass

    def answer(self, job):
        if job.request["read"] == ["die"]:
            os.abort()
        if job.request["read"] == ["hang"]:
            time.sleep(600)
        return {"pid": os.getpid()}


def test_a_parser_that_dies_or_hangs_is_replaced(monkeypatch):
    monkeypatch.setattr(trace_client, "HANDLER", f"{__name__}:Misbehaving")
    with TraceClient(timeout_s=1.0) as client:
        pids = [client.request(read=[])["pid"]]
        for request, words in (("die", "crashed: the worker died of SIGABRT"), ("hang", "did not end within")):
            assert words in client.request(read=[request])["error"]
            pids.append(client.request(read=[])["pid"])
    assert len(set(pids)) == 3
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_worker_that_does_not_start_is_told(monkeypatch):
    monkeypatch.setattr(trace_client, "HANDLER", "tests.no_such_module:Handler")
    with TraceClient() as client, pytest.raises(LogError, match=r"does not start.*no_such_module"):
        client.request(read=[])
