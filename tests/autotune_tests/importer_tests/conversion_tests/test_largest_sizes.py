"""What reads a result whose size depends on data."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.importer.onnx_model.load import load_model
from autotune.importer.onnx_model.simplify import simplify
from schedules.errors import ModelError
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


@pytest.mark.parametrize(
    "nodes",
    [
        [helper.make_node("Shape", ["places"], ["sizes"]), helper.make_node("Cast", ["sizes"], ["y"], to=1)],
        [
            helper.make_node("Cast", ["places"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMean", ["f"], ["y"], axes=[1]),
        ],
        [
            helper.make_node("Cast", ["places"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Concat", ["f", "f"], ["y"], axis=1),
        ],
    ],
    ids=lambda nodes: "-".join(node.op_type for node in nodes),
)
def test_what_needs_the_true_size_is_refused_by_name(tmp_path, nodes):
    path = written(above(*nodes), tmp_path)
    with pytest.raises(ModelError, match=r"operator (Shape|ReduceMean|Concat) .*depends on data"):
        simplify(load_model(path))
