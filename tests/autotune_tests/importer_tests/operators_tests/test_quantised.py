"""Quantised operators are arithmetic on what they stand for."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.autotune_tests.importer_tests.onnx_cases import model_of, rewritten, value

RNG = np.random.default_rng(0)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_pair_of_quantise_and_dequantise_per_channel(tmp_path):
    weights = {"s": np.array([0.1, 0.2, 0.4], np.float32), "z": np.array([3, 128, 250], np.uint8)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1),
    ]
    found = rewritten(model_of(nodes, [value("x", (2, 3))], ["y"], weights), tmp_path, {"x": 10 * array(2, 3)})
    assert not found.keys() & {"QuantizeLinear", "DequantizeLinear"}


@pytest.mark.parametrize("zero_points", [(), ("za",), ("za", "zb")])
def test_integer_products(tmp_path, zero_points):
    nodes = [helper.make_node("MatMulInteger", ["a", "b", *zero_points], ["y"])]
    weights = {"b": RNG.integers(-128, 128, (4, 3)).astype(np.int8)}
    weights |= {name: np.array(7, np.uint8 if name == "za" else np.int8) for name in zero_points}
    model = model_of(nodes, [value("a", (2, 4), TensorProto.UINT8)], [], weights)
    model.graph.output.append(value("y", (2, 3), TensorProto.INT32))
    assert "MatMulInteger" not in rewritten(model, tmp_path, {"a": RNG.integers(0, 256, (2, 4)).astype(np.uint8)})


def test_a_dynamic_scale_comes_from_onnx_own_function(tmp_path):
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    found = rewritten(model_of(nodes, [value("x", (3, 4))], ["y"]), tmp_path, {"x": array(3, 4)})
    assert not found.keys() & {"DynamicQuantizeLinear", "QuantizeLinear", "DequantizeLinear"}
