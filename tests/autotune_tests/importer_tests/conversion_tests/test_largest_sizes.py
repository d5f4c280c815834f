"""What reads a result whose size depends on data."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.importer.load import load_model
from autotune.importer.program import simplify
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written

X = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)


def above(*nodes):
    """Nodes behind ``places`` (rank, n) of what is above zero in column 0 of x, whose results are ``y``."""
    return model_of(
        [
            helper.make_node("Gather", ["x", "zero"], ["column"], axis=1),
            helper.make_node("Greater", ["column", "none"], ["hit"]),
            helper.make_node("NonZero", ["hit"], ["places"]),
            *nodes,
        ],
        [value("x", X.shape)],
        ["y"],
        {
            "zero": np.array(0),
            "none": np.array(0, np.float32),
            "axis": np.array([0]),
            "half": np.array(0.5, np.float32),
            "ends": np.array([1]),
            "columns": np.array([1]),
        },
    )


def test_rows_are_gathered_scaled_and_cut_to_their_number(tmp_path):
    model = above(
        helper.make_node("Squeeze", ["places", "axis"], ["rows"]),
        helper.make_node("Gather", ["x", "rows"], ["some"]),
        helper.make_node("Mul", ["some", "half"], ["scaled"]),
        helper.make_node("Slice", ["scaled", "axis", "ends", "columns"], ["sliced"]),
        helper.make_node("Transpose", ["sliced"], ["y"]),
    )
    ours, theirs = run(model, tmp_path, {"x": X})
    assert close(ours, theirs)
    assert ours[0].shape == (1, int((X[:, 0] > 0).sum()))


def test_two_of_the_same_are_one(tmp_path):
    """Values of two masks that are the same node by node have one length, so that they may meet."""
    model = above(
        helper.make_node("NonZero", ["hit"], ["again"]),
        helper.make_node("Add", ["places", "again"], ["twice"]),
        helper.make_node("Cast", ["twice"], ["y"], to=TensorProto.FLOAT),
    )
    assert close(*run(model, tmp_path, {"x": X}))


def test_what_needs_the_true_size_is_refused_by_name(tmp_path):
    nodes = [
        helper.make_node("Cast", ["places"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("LpNormalization", ["f"], ["y"], axis=1),
    ]
    path = written(above(*nodes), tmp_path)
    with pytest.raises(ModelError, match=r"operator LpNormalization .*depends on data"):
        simplify(load_model(path))
