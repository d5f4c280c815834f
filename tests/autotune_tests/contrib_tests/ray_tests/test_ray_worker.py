"""What runs on a cluster's machine, without a cluster."""

from __future__ import annotations

import platform

import pytest
import tvm

from autotune.contrib.ray import ray_worker
from autotune.contrib.ray.ray_worker import MeasurerOptions, RayWorker, versions
from autotune.host.machine import host_target
from autotune.measure.local_measurer import LOWERING
from autotune.measure.measure_limits import MeasureLimits
from schedules.vocabulary.errors import UsageError


def test_a_machine_describes_itself() -> None:
    described = RayWorker().describe(1, None)
    assert described.host == platform.node()
    assert described.target == host_target(1)
    assert described.versions == versions()
    assert versions()[1] == tvm.__version__
    with pytest.raises(UsageError, match="--threads 4096"):
        RayWorker().describe(4096, None)


def test_calls_go_to_the_worker_that_was_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    class Measurer:
        def __init__(self, target: object, **options: object) -> None:
            opened.append((target, options.pop("shared").lock, options))

        def close(self) -> None:
            opened.append("closed")

    monkeypatch.setattr(ray_worker, "LocalMeasurer", Measurer)
    worker = RayWorker()
    worker.open(host_target(1), MeasurerOptions(seed=3))
    worker.call("close")
    (target, lock, options), end = opened
    assert target == host_target(1)
    assert lock is not None
    assert options == {"evaluator": "adaptive", "seed": 3, "limits": MeasureLimits(), "lowering": LOWERING}
    assert end == "closed"
