"""What ``tune tasks`` and ``tune lanes`` show of a model's branches and subgraphs."""

import pytest

from autotune.artifact.directory import read_artifact
from autotune.importer.guarded_import import import_model
from autotune.report.inspect_lanes import report_branches, report_lanes
from schedules.target import Target
from tests.models.catalog import cached

TWO = Target("llvm", "avx2", "haswell", threads=2)


@pytest.fixture(scope="module")
def program():
    return import_model(cached("tiny_branches"), {}, TWO)[1]


def test_branches_are_shown_before_anything_is_tuned(program):
    rows = report_branches(program, TWO)
    assert max(sum(row.phase == other.phase for other in rows) for row in rows) == 4


def test_a_model_on_one_lane_is_one_row(tiny_built):
    report = report_lanes(tiny_built.artifact)
    (row,) = report.rows
    assert row.kernels == len(read_artifact(tiny_built.artifact).steps.calls)
    assert row.predicted == (None, None)
    assert 0.0 <= row.measured[0] <= row.measured[1]
    assert report.predicted_s is None
    assert report.one_lane_s is None
    assert report.to_data()["rows"][0]["lane"] == row.lane
