"""Padding by a word is padding in numbers, and costs no kernel; windows larger than the data."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.importer.operators.pool_windows import same_pads
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("mode", "kernel", "stride", "dilation", "pads"),
    [
        ("SAME_UPPER", 3, 1, 1, [1, 1]),
        ("SAME_UPPER", 2, 1, 1, [0, 1]),
        ("SAME_LOWER", 2, 1, 1, [1, 0]),
        ("SAME_UPPER", 3, 2, 1, [1, 1]),
        ("SAME_UPPER", 3, 1, 3, [3, 3]),
        ("SAME_LOWER", 1, 4, 1, [0, 0]),
    ],
)
def test_pads_of_an_axis_of_nine(mode, kernel, stride, dilation, pads):
    assert same_pads(mode, [9], [kernel], [stride], [dilation]) == pads


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("kind", ["Conv", "MaxPool", "AveragePool"])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (4, 2), (2, 3)])
def test_results_are_the_references(mode, kind, kernel, stride, tmp_path):
    inputs = ["x", "w"] if kind == "Conv" else ["x"]
    shape = {"kernel_shape": [kernel, kernel], "strides": [stride, stride], "auto_pad": mode}
    weights = {"w": RNG.standard_normal((8, 16, kernel, kernel)).astype(np.float32)}
    model = model_of([helper.make_node(kind, inputs, ["y"], **shape)], [value("x", (1, 16, 9, 11))], ["y"], weights)
    feed = {"x": RNG.standard_normal((1, 16, 9, 11)).astype(np.float32)}
    assert close(*run(model, tmp_path, feed))
    assert not any("pad" in task.name for task in imported(model, tmp_path).tasks)


CUT = {
    "rounded up": ((1, 3, 2, 5), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "rounded towards zero": ((1, 3, 3, 9), {"kernel_shape": [5, 3], "strides": [3, 2]}),
    "a line with padding": ((2, 3, 1), {"kernel_shape": [3], "strides": [2], "pads": [0, 1]}),
    "along two axes": ((1, 2, 2, 2, 4), {"kernel_shape": [3, 3, 2], "strides": [2, 2, 1], "ceil_mode": 1}),
}
"""Cause of one element that is left of a window larger than the padded data → shape of the data, attributes."""


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("kind", ["MaxPool", "MaxPool with indices", "AveragePool", "AveragePool of padding", "LpPool"])
def test_a_window_larger_than_the_data_may_leave_one_element(name, kind, tmp_path):
    shape, attributes = CUT[name]
    operator, *more = kind.split(" ", 1)
    if more == ["of padding"]:
        attributes = {**attributes, "count_include_pad": 1}
    outputs = ["y", "i"] if more == ["with indices"] else ["y"]
    node = helper.make_node(operator, ["x"], outputs, **attributes)
    model = model_of([node], [value("x", shape)], ["y"], opset=22)
    if len(outputs) > 1:
        model.graph.output.append(value("i", None, TensorProto.INT64))
    assert close(*run(model, tmp_path, {"x": RNG.standard_normal(shape).astype(np.float32)}))


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("attributes", [{}, {"strides": [2, 2]}, {"strides": [3, 3], "dilations": [2, 2]}])
def test_a_window_that_leaves_nothing_is_refused(kind, attributes, tmp_path):
    node = helper.make_node(kind, ["x"], ["y"], kernel_shape=[4, 3], **attributes)
    model = model_of([node], [value("x", (1, 2, 2, 5))], ["y"], opset=22)
    with pytest.raises(ModelError, match="its window is larger than its padded data"):
        imported(model, tmp_path)
