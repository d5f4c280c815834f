"""Processes and comparisons of a run: parts start no server of their own, and the whole is compared once."""

from collections import Counter

import numpy as np
import onnx
import pytest

from autotune.builder import accuracy
from autotune.builder.devices import lane_costs
from autotune.host.machine import read_host
from autotune.host.worker_pool import ForkServerProcess
from autotune.options import Options
from autotune.runtime.session import InferenceSession
from autotune.tuning.tune import tune
from autotune.validation.reference_runs import reference_outputs
from autotune.validation.verify import session_inputs
from tests.autotune_tests.fakes import fake_device
from tests.models.catalog import cached
from tests.simulated.stand_in import stand_in

MODEL = "tiny_branches"

pytestmark = pytest.mark.skipif(read_host().usable_threads < 2, reason="lanes side by side need two cores")


@pytest.fixture
def counted(monkeypatch):
    """Servers, workers and comparisons of a run are counted. Kernels are timed by rule."""
    counts = Counter()

    def count(owner, name, what):
        real = getattr(owner, name)

        def counting(*arguments, **named):
            counts[what] += 1
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, counting)

    real = {name: getattr(accuracy, name) for name in ("compare_isolated", "run_isolated")}
    counts["measurers"] = fake_device(monkeypatch)
    for name, function in real.items():
        monkeypatch.setattr(accuracy, name, function)
        count(accuracy, name, name)
    count(ForkServerProcess, "_run", "servers")
    count(ForkServerProcess, "spawn", "workers")
    monkeypatch.setattr(lane_costs, "PROFILE_S", 0.01)
    stand_in(monkeypatch)
    return counts


def run(folder, lanes):
    """Tune without a trial; the artifact gives the reference's outputs."""
    options = Options(out=folder / "m.tuned", log=folder / "t.db", trials=0, lanes=lanes, threads=2, peer=False)
    result = tune(cached(MODEL), options)
    session = InferenceSession(result.artifact)
    feed = session_inputs(session, 3)
    for ours, theirs in zip(session.run(None, feed), reference_outputs(onnx.load(cached(MODEL)), feed)[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    assert result.verified.passed
    return result


@pytest.mark.parametrize(
    ("lanes", "measurers"),
    [
        ("cpu", 1),
        pytest.param("cpu:2x1", 1, marks=pytest.mark.slow),
        pytest.param("cpu,sim:0", 2, marks=pytest.mark.slow),
        ("cpu,sim:0,sim:1", 2),
        pytest.param("cpu:0,cpu:1,sim:0", 1, marks=pytest.mark.slow),
        pytest.param("sim:0,sim:1", 1, marks=pytest.mark.slow),
    ],
)
def test_a_run_starts_one_server_and_compares_once(counted, tmp_path, lanes, measurers):
    """However many parts it has: a model on two lanes takes as much as one on one lane."""
    result = run(tmp_path, lanes)
    assert counted["servers"] == 1
    assert counted["compare_isolated"] == 1
    assert len(counted["measurers"]) == measurers  # a target each
    assert counted["run_isolated"] == len(result.parts)
    assert counted["workers"] == 1 + len(result.parts)  # forks of the server, each for an artifact that may crash
