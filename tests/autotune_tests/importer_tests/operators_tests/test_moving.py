"""Pads, splits and windows: elements move to places that constants decide."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.autotune_tests.importer_tests.onnx_cases import model_of, rewritten, value


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pads(tmp_path, mode):
    nodes = [helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)]
    model = model_of(nodes, [value("x", (2, 4))], ["y"], {"pads": np.array([0, 2, 1, 3])})
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert ("Pad" in rewritten(model, tmp_path, {"x": x})) == (mode == "constant")


def test_negative_pads_cut(tmp_path):
    model = model_of([helper.make_node("Pad", ["x", "p"], ["y"])], [value("x", (6,))], ["y"], {"p": np.array([-2, 1])})
    assert "Pad" not in rewritten(model, tmp_path, {"x": np.arange(6, dtype=np.float32)})


@pytest.mark.parametrize("ceil_mode", [0])
def test_max_pool_with_indices(tmp_path, ceil_mode):
    attributes = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": ceil_mode}
    nodes = [helper.make_node("MaxPool", ["x"], ["y", "i"], **attributes)]
    model = model_of(nodes, [value("x", (1, 2, 7, 6))], ["y"])
    model.graph.output.append(onnx.ValueInfoProto(name="i"))
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    x = np.random.default_rng(0).standard_normal((1, 2, 7, 6)).astype(np.float32)
    assert "MaxPool" not in rewritten(model, tmp_path, {"x": x})


def test_reversed_sequences(tmp_path):
    nodes = [helper.make_node("ReverseSequence", ["x", "n"], ["y"], time_axis=1, batch_axis=0)]
    model = model_of(nodes, [value("x", (2, 4)), value("n", (2,), TensorProto.INT64)], ["y"])
    feed = {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "n": np.array([3, 1])}
    assert "ReverseSequence" not in rewritten(model, tmp_path, feed)


@pytest.mark.parametrize("attributes", [{"output_shape": [9, 9]}, {"auto_pad": "SAME_UPPER"}])
def test_transposed_convolution_with_implied_pads(tmp_path, attributes):
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], **attributes)]
    model = model_of(
        nodes, [value("x", (1, 3, 4, 4))], ["y"], {"w": rng.standard_normal((3, 2, 3, 3)).astype(np.float32)}
    )
    assert rewritten(model, tmp_path, {"x": rng.standard_normal((1, 3, 4, 4)).astype(np.float32)})["ConvTranspose"] == 1


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("step", "more"), [(2, {}), (3, {"pads": [0, 0, 0, 0]})])
def test_transposed_filters_that_do_not_overlap_are_a_convolution(tmp_path, step, more, bias):
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((3, 5, step, step), np.float32), "b": rng.standard_normal(5, np.float32)}
    names = ["x", "w", "b"] if bias else ["x", "w"]
    nodes = [helper.make_node("ConvTranspose", names, ["y"], strides=[step, step], **more)]
    model = model_of(nodes, [value("x", (2, 3, 4, 6))], ["y"], {name: weights[name] for name in names[1:]})
    found = rewritten(model, tmp_path, {"x": rng.standard_normal((2, 3, 4, 6), np.float32)})
    assert found["Conv"] == 1
    assert "ConvTranspose" not in found


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [1, 1]},
        {"strides": [2, 1]},
        {"strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"strides": [2, 2], "output_padding": [1, 0]},
        {"strides": [2, 2], "group": 3},
    ],
    ids=["overlapping", "unlike steps", "pads", "more output", "groups"],
)
def test_other_transposed_convolutions_stay(tmp_path, attributes):
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attributes)]
    model = model_of(nodes, [value("x", (1, 3, 4, 4))], ["y"], {"w": rng.standard_normal((3, 2, 2, 2), np.float32)})
    assert rewritten(model, tmp_path, {"x": rng.standard_normal((1, 3, 4, 4), np.float32)})["ConvTranspose"] == 1
