"""Models that ONNX Runtime saved at its highest level, with images in blocks of channels."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from autotune.importer.operators.blocked_ops import BLOCKED
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written

RNG = np.random.default_rng(0)


def weight(*shape):
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def saved(nodes, weights, shape, folder):
    """The model as ONNX Runtime writes it for this machine."""
    path, target = written(model_of(nodes, [value("x", shape)], ["y"], weights), folder), folder / "saved.onnx"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(target)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return onnx.load(target)


def network():
    """Channels that fill no block, a depthwise convolution, a residual, pools, a resize, an activation of each kind."""
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["d"], pads=[1, 1, 1, 1], group=24),
        helper.make_node("Clip", ["d", "low", "high"], ["c"]),
        helper.make_node("Conv", ["c", "w2", "b2"], ["e"]),
        helper.make_node("Add", ["e", "r"], ["s"]),
        helper.make_node("MaxPool", ["s"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["m", "w3"], ["f"], group=2),
        helper.make_node("AveragePool", ["f"], ["p"], kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("Resize", ["p", "", "scales"], ["u"], mode="nearest", nearest_mode="floor",
                         coordinate_transformation_mode="asymmetric"),
        helper.make_node("Conv", ["u", "w4"], ["g"]),
        helper.make_node("GlobalAveragePool", ["g"], ["y"]),
    ]  # fmt: skip
    weights = {
        "w0": weight(24, 3, 3, 3), "b0": weight(24), "w1": weight(24, 1, 3, 3), "w2": weight(24, 24, 1, 1),
        "b2": weight(24), "w3": weight(32, 12, 1, 1), "w4": weight(40, 32, 1, 1), "low": np.float32(-0.5),
        "high": np.float32(0.75), "scales": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    return nodes, weights, (1, 3, 14, 14)


def wide():
    """Whole blocks from the input on, and two groups of them."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("LeakyRelu", ["a"], ["r"], alpha=0.3),
        helper.make_node("Conv", ["r", "w1"], ["b"], group=2),
        helper.make_node("GlobalMaxPool", ["b"], ["y"]),
    ]
    return nodes, {"w0": weight(64, 32, 3, 3), "w1": weight(64, 32, 1, 1)}, (2, 32, 9, 9)


@pytest.mark.parametrize("case", [network, wide])
def test_what_onnxruntime_saved_is_computed(case, tmp_path):
    nodes, weights, shape = case()
    model = saved(nodes, weights, shape, tmp_path)
    assert BLOCKED in {node.domain for node in model.graph.node}
    x = RNG.standard_normal(shape).astype(np.float32)
    assert close(*run(model, tmp_path, {"x": x}))
    templates = [task.template for task in imported(model, tmp_path).tasks]
    assert templates.count("conv2d") + templates.count("depthwise") >= len(weights) // 3


def test_channels_that_are_no_blocks_are_refused(tmp_path):
    node = helper.make_node("Conv", ["x", "w"], ["y"], domain=BLOCKED)
    model = model_of([node], [value("x", (1, 3, 4, 4))], ["y"], {"w": weight(12, 3, 1, 1)})
    model.opset_import.append(helper.make_opsetid(BLOCKED, 1))
    with pytest.raises(ModelError, match="no whole blocks"):
        imported(model, tmp_path)
