"""Each request is answered, whatever is wrong with it."""

from __future__ import annotations

import json

import pytest
import tvm

from autotune.contrib.exchange.trace_client import TraceJob
from autotune.contrib.exchange.trace_worker import TraceHandler
from autotune.host.machine import host_target
from schedules.lower import BASELINE, load_program, task_key
from schedules.traces import SPACE
from tests.autotune_tests.measure_tests.faults import candidate


@pytest.fixture(scope="module")
def handler():
    return TraceHandler(None)


def request(handler, **content):
    return handler.answer(TraceJob(content, timeout_s=1.0))


def test_what_is_written_is_read_again(handler):
    program = candidate("right").program
    task = task_key(load_program(program))
    written = request(handler, write=[task, program, BASELINE.to_json(), host_target().to_json(), 2e-3])
    entry = request(handler, read=json.loads(json.dumps([written["workload"], written["record"]])))
    assert (entry["tvm"], entry["space"], entry["run_secs"]) == (tvm.__version__, SPACE, [2e-3])
    assert entry["task"] == task


@pytest.mark.parametrize(
    "content",
    [{"read": [["1", "nonsense"], []]}, {"read": [7, 7]}, {"write": ["0", "{}", "{}", "{}", 1.0]}, {"write": []}],
)
def test_what_is_wrong_with_a_request_is_one_line(handler, content):
    answer = request(handler, **content)
    assert list(answer) == ["error"]
    assert answer["error"]
    assert "\n" not in answer["error"]
