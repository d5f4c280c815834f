"""Padding by a word is padding in numbers, and costs no kernel."""

import numpy as np
import pytest
from onnx import helper

from autotune.importer.operators.pool_windows import same_pads
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
