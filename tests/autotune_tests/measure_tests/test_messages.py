"""Jobs, settings and answers reach another process as they are."""

import pickle

import pytest

from autotune.host.machine import host_target
from autotune.measure.evaluator import Adaptive
from autotune.measure.messages import BuildJob, Built, Reference, ReferenceJob, Settings, Timed, TimedAll, TimeJob
from schedules.config import Config
from schedules.lower import BASELINE
from schedules.task import Task

TASK = Task("t", "double", "fake", "multiply", ((4,), (4,)), ("float32",) * 2, (), 4, 32)
CONFIG = Config("fake/1", (("x", 3),))
TIME = TimeJob(
    TASK,
    ("a.so",),
    (CONFIG,),
    "program.json",
    Reference("a.npy", True),
    Adaptive(),
    1e-3,
    ("b.so", BASELINE),
    64,
    timeout_s=2.0,
    memory_bytes=1 << 20,
)


@pytest.mark.parametrize(
    "message",
    [
        Settings(host_target(1), (0,), 7, "schedules.lower", "/tmp/x"),
        BuildJob("program.json", CONFIG, "a.so", "symbol", timeout_s=1.0),
        ReferenceJob(TASK, "a.so", "a.npy", Adaptive(), 0, timeout_s=1.0),
        TIME,
        Built(0.1, "hash"),
        TimedAll((Timed((1e-3,), 0.1), Timed(error="timeout", message="slow")), True, "board"),
    ],
)
def test_messages_travel(message):
    assert pickle.loads(pickle.dumps(message)) == message


def test_limits_are_part_of_a_job():
    assert (TIME.timeout_s, TIME.memory_bytes) == (2.0, 1 << 20)
    assert BuildJob("program.json", CONFIG, "a.so", "symbol", timeout_s=1.0).memory_bytes is None
