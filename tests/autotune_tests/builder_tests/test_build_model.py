"""Placing a model on lanes, end to end: right outputs, and a plan that says where everything runs."""

import threading

import numpy as np
import onnxruntime
import pytest

import autotune
from autotune.artifact.directory import read_artifact
from autotune.artifact.plan import Plan
from autotune.cli.main import main
from autotune.host.machine import read_host
from autotune.options import Options
from autotune.report.inspect_lanes import report_lanes
from schedules.target import Target
from schedules.vocabulary.errors import MissingRecordError, UsageError
from tests.models import catalog

TWO = Target("llvm", "avx2", "haswell", threads=2)
needs_two = pytest.mark.skipif(read_host().usable_threads < 2, reason="one core has one lane")


@pytest.fixture(scope="module")
def branches(tmp_path_factory):
    """An inception module: four branches that meet in a concatenation."""
    path = tmp_path_factory.mktemp("duet") / "tiny_branches.onnx"
    return catalog.save("tiny_branches", path)


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    folder = tmp_path_factory.mktemp("placed")
    # Within the budget every kernel is to be timed, on a slow machine with nothing compiled before too.
    return Options(
        out=folder / "model.tuned", trials=0, threads=2, log=folder / "log.db", lanes="cpu:2x1", budget_s=60.0
    )


@pytest.fixture(scope="module")
def placed(branches, options):
    autotune.tune(branches, options)
    return options.out


@needs_two
def test_the_plan_places_every_call_once_and_survives_json(placed):
    plan = read_artifact(placed).plan
    assert plan.lanes is not None
    calls = [call for subgraph in plan.lanes.subgraphs for call in subgraph.calls]
    assert sorted(calls) == list(range(len(calls)))
    assert {subgraph.lane for subgraph in plan.lanes.subgraphs} <= {"cpu:0", "cpu:1"}
    assert plan.lanes.predicted_s > 0.0
    assert plan.lanes.measured_s > 0.0
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.digest == plan.digest


@needs_two
def test_outputs_are_those_of_onnxruntime_for_every_caller(placed, branches):
    reference = onnxruntime.InferenceSession(str(branches))
    names = [item.name for item in reference.get_inputs()]
    shape = reference.get_inputs()[0].shape
    feeds = [{names[0]: np.random.default_rng(n).standard_normal(shape).astype(np.float32)} for n in range(16)]
    expected = [reference.run(None, feed) for feed in feeds]
    session = autotune.InferenceSession(placed)
    wrong = []

    def call(index):
        for _ in range(10):
            ours = session.run(None, feeds[index])
            close = all(np.allclose(a, b, 1e-3, 1e-5) for a, b in zip(ours, expected[index], strict=True))
            wrong.extend([] if close else [index])

    threads = [threading.Thread(target=call, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@needs_two
def test_a_build_needs_nothing_but_the_log(placed, branches, options, tmp_path):
    before = read_artifact(placed).plan
    built = autotune.build(branches, autotune.Options(**{**vars(options), "out": tmp_path / "again.tuned"}))
    after = read_artifact(built.artifact).plan
    assert after.lanes.subgraphs == before.lanes.subgraphs
    with pytest.raises(MissingRecordError):
        autotune.build(branches, autotune.Options(**{**vars(options), "log": tmp_path / "empty.db"}))


@needs_two
def test_lanes_are_shown_with_predicted_and_measured_times(placed):
    report = report_lanes(placed)
    assert report.predicted_s is not None
    assert report.measured_s > 0.0
    assert all(row.predicted[0] is not None and row.measured[0] <= row.measured[1] for row in report.rows)
    assert report.to_data()["rows"]


@needs_two
def test_the_command_line_shows_lanes(placed, capsys):
    assert main(["lanes", str(placed)]) == 0
    shown = capsys.readouterr().out
    assert "predicted" in shown
    assert "cpu:0" in shown


def test_wrong_lanes_are_refused_before_anything_is_started(branches, tmp_path):
    with pytest.raises(UsageError, match="give a device as cpu,cuda:0"):
        autotune.tune(branches, Options(out=tmp_path / "x", lanes="cuda:0,cpu"))
