"""Bench of several clients: what is reported and refused, and one real round against everything there is."""

import importlib.util
import json

import pytest

from autotune.cli.text import clients_lines
from autotune.runtime.serve_options import ServeOptions
from autotune.validation import bench_clients as module
from autotune.validation import bench_process
from autotune.validation.bench_clients import ClientsResult, Served, bench_clients
from autotune.validation.peers.peer_catalog import peer
from schedules.vocabulary.errors import UsageError
from tests.autotune_tests.composites import two_batches

WAYS = {"onnxruntime": ("onnxruntime", "onnxruntime-per-client")}
RESULT = ClientsResult(
    None,
    "tiny.onnx",
    2,
    2,
    (
        Served("tune", "1", "fp32", 4, [(300.0, [0.01] * 300), (400.0, [0.02] * 800)]),
        Served("onnxruntime", "2", "fp32", 4, [(100.0, [0.04] * 100), (100.0, [0.05] * 100)]),
        Served("onnxruntime-per-client", "2", "fp32", 4, [(200.0, [0.02] * 200), (200.0, [0.03] * 200)]),
    ),
    WAYS,
    0.25,
)


def test_rates_are_medians_over_rounds_and_compared_with_the_better_way():
    assert [served.requests_per_s for served in RESULT.served] == [350, 100, 200]
    assert RESULT.speedup("onnxruntime", 4) == 1.75


def test_a_way_far_behind_the_better_one_of_its_engine_is_left_out():
    assert module._far_behind(RESULT.served, WAYS) == {("onnxruntime", 4)}
    assert module._far_behind(RESULT.served[:1], {"tune": ("tune",)}) == set()


def test_data_and_lines_say_the_same():
    data = json.loads(json.dumps({**RESULT.to_data(), "artifact": "a"}))
    assert data["speedup"] == {"onnxruntime": {"4": 1.75}}
    ours = data["served"][0]
    assert (ours["requests"], ours["clients"]) == (1100, 4)
    assert ours["quartiles"] == [325.0, 375.0]
    assert ours["p50_ms"] <= ours["p90_ms"] <= ours["p99_ms"] == pytest.approx(20.0)
    lines = clients_lines(RESULT)
    assert any("350.0" in line for line in lines)
    assert "speedup over onnxruntime: 1.750 with 4 clients" in lines
    assert lines[-1].startswith("warning: other processes used 25%")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": []}, "each must be at least 1"),
        ({"clients": [0]}, "each must be at least 1"),
        ({"rounds": 0}, "each must be at least 1"),
        ({"clients": [1, 99_999_999_999]}, "--clients 99999999999: must be at most 4096"),
        ({"against": ["onnxruntme"]}, "did you mean 'onnxruntime'"),
        ({"against": ["openvino-default"]}, "it cannot serve several clients at once"),
    ],
)
def test_what_makes_no_sense_is_refused(tiny_built, changes, message):
    arguments = {"clients": [1], "against": [], "options": ServeOptions(), **changes}
    with pytest.raises(UsageError, match=message):
        bench_clients(tiny_built.artifact, **arguments)


@pytest.fixture
def hurried(monkeypatch):
    """Short rounds: these tests look at the machinery, not at the times."""
    monkeypatch.setattr(module, "ROUND_S", 0.02)
    monkeypatch.setattr(bench_process, "QUIET_S", 0.02)
    monkeypatch.setattr(bench_process, "QUIET_SHARE", 2.0)


def test_engines_and_other_artifacts_serve_in_turn(tiny_built, hurried):
    engines = [name for name in ("onnxruntime", "openvino") if importlib.util.find_spec(name)]
    other = str(tiny_built.artifact)
    result = bench_clients(tiny_built.artifact, [1, 3], [*engines, other], ServeOptions(streams=2), rounds=1)
    ways = [way for name in engines for way in peer(name).clients]
    assert [served.name for served in result.served] == ["tune", *ways, other] * 2
    assert [served.clients for served in result.served] == [1] * (len(ways) + 2) + [3] * (len(ways) + 2)
    assert all(served.requests_per_s > 0 and served.precision == "fp32" for served in result.served)
    assert result.threads == 2
    assert result.speedup(other, 3) > 0


def test_requests_have_values_that_the_model_runs(tiny_built, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "runnable_inputs", lambda model, specs, seed: asked.append((model, specs)) or {})
    monkeypatch.setattr(module, "write_job", stop := Stop())
    for against, reads in (["onnxruntime"], True), ([str(tiny_built.artifact)], False):
        with pytest.raises(StopIteration):
            bench_clients(tiny_built.artifact, [1], against, ServeOptions())
        assert (asked[-1][0] is not None) == reads
        assert [spec.name for spec in asked[-1][1]] == ["data"]
    assert stop.calls == 2


class Stop:
    """Ends what calls it."""

    calls = 0

    def __call__(self, *_):
        self.calls += 1
        raise StopIteration


def test_requests_of_the_smallest_size_are_joined(tmp_path, measurer, hurried):
    built = two_batches(tmp_path, measurer)
    result = bench_clients(built.artifact, [4], [], ServeOptions(max_batch=8, max_wait_s=1e-3), rounds=1)
    (ours,) = result.served
    assert ours.to_data()["requests"] >= 4
