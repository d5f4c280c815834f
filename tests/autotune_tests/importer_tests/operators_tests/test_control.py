"""If and Loop without control flow."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def _branch(name, kind):
    node = helper.make_node(kind, ["x"], [name])
    return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, (3, 4))])


@pytest.mark.parametrize("taken", [True, False])
def test_a_computed_condition_chooses(tmp_path, taken):
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=_branch("t", "Exp"), else_branch=_branch("e", "Neg"))]
    model = model_of(nodes, [value("x", (3, 4)), value("c", (), TensorProto.BOOL)], ["y"])
    feed = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32), "c": np.array(taken)}
    assert close(*run(model, tmp_path, feed))


def test_a_loop_stops_when_its_condition_says_so(tmp_path):
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "s"], ["d"]),
            helper.make_node("ReduceMax", ["d"], ["m"], keepdims=0),
            helper.make_node("Less", ["m", "limit"], ["go"]),
        ],
        "body",
        [value("i", (), TensorProto.INT64), value("go_in", (), TensorProto.BOOL), value("s", (4,))],
        [value("go", (), TensorProto.BOOL), value("d", (4,))],
    )
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], "loop", body=body)]
    constants = {"trips": np.array(8, np.int64), "limit": np.array(20, np.float32)}
    model = model_of(nodes, [value("x", (4,))], ["y"], constants)
    assert close(*run(model, tmp_path, {"x": np.array([1, 2, 3, 4], np.float32)}))
