"""Which lanes are tuned for: only what could gain by running side by side."""

import pytest

from autotune.builder.lane_budget import SIDE_SHARE, cut_program, parallel_tasks, plan_sizes, possible_gain
from autotune.graph.lanes import parse_lanes
from autotune.importer.guarded_import import import_model
from schedules.target import Target
from tests.models import catalog
from tests.models.catalog import cached

TWO = Target("llvm", "avx2", "haswell", threads=2)


@pytest.fixture(scope="module")
def program():
    """An inception module: four branches that meet in a concatenation."""
    return import_model(cached("tiny_branches"), {}, TWO)[1]


def test_only_what_may_run_side_by_side_is_tuned_for_small_lanes(program):
    flat, cut = cut_program(program, TWO)
    side = parallel_tasks(flat, cut)
    assert side < {task.key for task in program.tasks}
    assert len(side) >= 4
    assert 1.0 < possible_gain(flat, cut, dict.fromkeys((call.symbol for call in flat.calls), 1.0)) < 4.0


def test_lanes_that_cannot_gain_get_no_budget(tmp_path):
    path = catalog.save("tiny_mlp", tmp_path / "chain.onnx")
    chain = import_model(path, {}, TWO)[1]
    sizes = plan_sizes(chain, TWO, parse_lanes("auto", 2))
    assert list(sizes) == [2]
    assert sizes[2].share == 1.0


def test_auto_shares_the_budget_and_names_get_all_of_it(program):
    auto = plan_sizes(program, TWO, parse_lanes("auto", 2))
    assert sum(size.share for size in auto.values()) == pytest.approx(1.0)
    assert auto[1].tasks < auto[2].tasks
    assert 0.0 < auto[1].share <= SIDE_SHARE
    named = plan_sizes(program, TWO, parse_lanes("cpu:2x1", 2))
    assert list(named) == [1]
    assert named[1].share == 1.0
