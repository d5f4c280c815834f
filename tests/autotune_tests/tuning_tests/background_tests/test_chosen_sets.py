"""Sets of shapes are chosen by the time that requests took, padded where that is right."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.importer.onnx_model.shape_sets import MOST_SETS
from autotune.runtime.adaptive.whole_model import WholeModel
from autotune.tuning.background.chosen_sets import NEW_SETS, SizeChooser
from tests.autotune_tests.importer_tests.onnx_cases import conv_model, model_of, value, written
from tests.models import save


@pytest.fixture
def encoder(tmp_path):
    save("tiny_open_length", tmp_path / "encoder.onnx")
    return chooser_of(tmp_path / "encoder.onnx")


def chooser_of(path: Path) -> SizeChooser:
    return SizeChooser(path, WholeModel(path, 1))


def tokens(*sizes):
    return {((batch, length), (batch, length)): seconds for batch, length, seconds in sizes}


def test_lengths_that_may_be_padded_share_a_set_and_the_heaviest_is_first(encoder):
    demand = tokens((1, 13, 1.0), (1, 15, 1.0), (1, 40, 1.5), (3, 5, 0.5))
    sets = encoder.choose(demand, [])
    assert [shapes["ids"] for shapes in sets] == [(1, 16), (1, 48), (3, 6)]
    assert all(shapes["ids"] == shapes["mask"] for shapes in sets)
    assert encoder.choose(demand, sets) == []
    assert [shapes["ids"] for shapes in encoder.choose(demand, sets[:1])] == [(1, 48), (3, 6)]


def test_there_are_some_new_sets_at_once_and_never_too_many(encoder):
    demand = tokens(*((1, 2**power, 1.0) for power in range(8)), *((4, 2**power, 1.0) for power in range(8)))
    present = []
    while new := encoder.choose(demand, present):
        assert len(new) <= NEW_SETS
        present += new
    assert len(present) == MOST_SETS


def test_a_table_of_positions_is_not_left(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], start=1, end=2),
        helper.make_node("Squeeze", ["shape"], ["length"]),
        helper.make_node("Range", ["zero", "length", "one"], ["places"]),
        helper.make_node("Gather", ["table", "places"], ["rows"]),
        helper.make_node("Add", ["x", "rows"], ["y"]),
    ]
    weights = {
        "table": np.ones((20, 4), np.float32),
        "zero": np.array(0, np.int64),
        "one": np.array(1, np.int64),
    }
    path = written(model_of(nodes, [value("x", ("batch", "length", 4))], ["y"], weights), tmp_path)
    chooser = chooser_of(path)
    assert chooser.choose({((1, 9, 4),): 1.0}, []) == [{"x": (1, 12, 4)}]
    assert chooser.choose({((1, 19, 4),): 1.0}, []) == [{"x": (1, 19, 4)}]


def test_sizes_without_names_are_independent(tmp_path):
    nodes = [helper.make_node("Concat", ["x", "z"], ["y"], axis=1)]
    path = written(model_of(nodes, [value("x", (1, "?", 4)), value("z", (1, "?", 4))], ["y"]), tmp_path)
    assert chooser_of(path).choose({((1, 5, 4), (1, 9, 4)): 1.0}, []) == [{"x": (1, 5, 4), "z": (1, 9, 4)}]


@pytest.mark.parametrize("size", [8, 9])
def test_a_resolution_is_tuned_as_it_is(size, tmp_path):
    path = written(conv_model((1, 3, "height", "width")), tmp_path)
    assert chooser_of(path).choose({((1, 3, size, 7),): 1.0}, []) == [{"x": (1, 3, size, 7)}]


def test_a_model_without_open_sizes_has_its_own_set(tmp_path):
    assert chooser_of(written(conv_model(), tmp_path)).choose({((1, 3, 8, 8),): 1.0}, []) == [{"x": (1, 3, 8, 8)}]


def test_what_the_model_takes_at_few_sizes_is_not_padded(tmp_path):
    nodes = [helper.make_node("Reshape", ["ids", "shape"], ["y"])]
    ids = value("ids", ("n",), TensorProto.FLOAT)
    path = written(model_of(nodes, [ids], ["y"], {"shape": np.array([-1, 7, 11], np.int64)}), tmp_path)
    assert chooser_of(path).choose({((77,),): 1.0}, []) == [{"ids": (77,)}]
