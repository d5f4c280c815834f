"""A convolution in 64 bits is ONNX Runtime's in 32, and NumPy's in 64."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.validation.arithmetic import exact_conv
from autotune.validation.reference_runs import reference_outputs
from autotune.validation.widen import widen

CASES = {
    "plain": ((1, 3, 7, 8), (4, 3, 3, 3), {}),
    "pads": ((2, 3, 7, 8), (4, 3, 3, 2), {"pads": [1, 0, 2, 1]}),
    "strides": ((1, 2, 9, 8), (4, 2, 3, 3), {"strides": [2, 3], "pads": [1, 1, 1, 1]}),
    "dilations": ((1, 2, 9, 9), (3, 2, 3, 3), {"dilations": [2, 3], "pads": [2, 3, 2, 3]}),
    "groups": ((1, 6, 5, 5), (4, 3, 3, 3), {"group": 2}),
    "depthwise": ((1, 6, 5, 5), (6, 1, 3, 3), {"group": 6, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "same lower": ((1, 2, 6, 6), (2, 2, 2, 4), {"auto_pad": "SAME_LOWER"}),
    "valid": ((1, 2, 6, 6), (2, 2, 3, 3), {"auto_pad": "VALID"}),
    "one axis": ((1, 3, 11), (4, 3, 5), {"strides": [2], "pads": [2, 1]}),
    "three axes": ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"pads": [1, 0, 1, 0, 1, 0]}),
    "pointwise": ((1, 5, 4, 4), (3, 5, 1, 1), {}),
}

TRANSPOSED = {
    "plain": ((1, 3, 7, 8), (3, 4, 3, 3), {}),
    "strides": ((2, 3, 5, 4), (3, 4, 4, 3), {"strides": [2, 3], "pads": [1, 0, 1, 2], "output_padding": [1, 2]}),
    "wider than the filter": ((1, 3, 5, 4), (3, 4, 1, 2), {"strides": [2, 3]}),
    "dilations": ((1, 2, 5, 6), (2, 3, 3, 2), {"strides": [2, 1], "dilations": [2, 3], "pads": [1, 2, 0, 1]}),
    "groups": ((1, 6, 5, 5), (6, 2, 3, 3), {"group": 3, "strides": [2, 2]}),
    "depthwise": ((1, 6, 5, 5), (6, 1, 4, 4), {"group": 6, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "same upper": ((1, 2, 6, 6), (2, 2, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    "same lower": ((1, 2, 6, 6), (2, 2, 4, 5), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    "of a shape": ((1, 2, 6, 6), (2, 2, 4, 4), {"output_shape": [11, 12], "strides": [2, 2]}),
    "one axis": ((1, 3, 11), (3, 4, 5), {"strides": [4], "pads": [2, 1]}),
    "three axes": ((1, 2, 4, 5, 6), (2, 3, 2, 3, 2), {"strides": [2, 1, 3], "pads": [1, 0, 1, 0, 1, 0]}),
}


def model_of(shape, kernel, attributes, bias=True, operator="Conv"):
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal(kernel).astype(np.float32), "w")]
    if bias:
        filters = kernel[0] if operator == "Conv" else kernel[1] * attributes.get("group", 1)
        weights.append(numpy_helper.from_array(rng.standard_normal(filters).astype(np.float32), "b"))
    node = helper.make_node(operator, ["x", "w", "b"][: 2 + bias], ["y"], name="conv", **attributes)
    data = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "conv", [data], [result], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def both(model, shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    wide, noisy = widen(model)
    assert not noisy
    (narrow,) = reference_outputs(model, {"x": x})[1]
    (exact,) = reference_outputs(wide, {"x": x.astype(np.float64)})[1]
    return x, narrow, exact


@pytest.mark.parametrize("case", CASES)
def test_it_is_onnx_runtime_s(case):
    shape, kernel, attributes = CASES[case]
    _, narrow, exact = both(model_of(shape, kernel, attributes), shape)
    assert exact.dtype == np.float64
    assert exact.shape == narrow.shape
    assert np.abs(exact - narrow).max() < 1e-5


@pytest.mark.parametrize("case", TRANSPOSED)
def test_a_transposed_one_is_onnx_runtime_s(case):
    shape, kernel, attributes = TRANSPOSED[case]
    model = model_of(shape, kernel, attributes, operator="ConvTranspose")
    _, narrow, exact = both(model, shape)
    assert not any(node.op_type == "ConvTranspose" for node in widen(model)[0].graph.node)
    assert exact.shape == narrow.shape
    assert 0 < np.abs(exact - narrow).max() < 1e-5


def test_pieces_of_the_kernel_add_up(monkeypatch):
    shape, kernel, attributes = CASES["strides"]
    model = model_of(shape, kernel, attributes, bias=False)
    whole = both(model, shape)[2]
    monkeypatch.setattr(exact_conv, "COLUMNS_BYTES", 1)
    _, narrow, pieces = both(model, shape)
    assert sum(node.op_type == "MatMul" for node in widen(model)[0].graph.node) == kernel[2]
    assert np.abs(pieces - whole).max() < 1e-14
    assert np.abs(pieces - narrow).max() < 1e-5


def test_it_does_not_round_to_32_bits():
    shape, kernel, _ = CASES["plain"]
    model = model_of(shape, kernel, {})
    x, narrow, exact = both(model, shape)
    weight, bias = (numpy_helper.to_array(tensor).astype(np.float64) for tensor in model.graph.initializer)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), axis=(2, 3))
    right = np.einsum("ncyxij,mcij->nmyx", windows, weight) + bias[:, None, None]
    assert np.abs(exact - right).max() < 1e-13
    assert np.abs(narrow - right).max() > 1e-9
