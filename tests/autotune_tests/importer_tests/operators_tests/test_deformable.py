"""DeformConv."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from autotune.importer.conversion.operator_catalog import import_graph
from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def test_computed_filters_have_the_shape_of_the_offsets():
    shapes = {"x": (1, 4, 6, 6), "w": (8, 4, 3, 3), "o": (1, 18, 4, 4), "b": (8,), "m": (1, 9, 4, 4)}
    node = helper.make_node("DeformConv", list(shapes), ["y"], "deform")
    module = import_graph(model_of([node], [value(name, shape) for name, shape in shapes.items()], ["y"], opset=19))
    assert [int(n) for n in module["main"].ret_ty.shape] == [1, 8, 4, 4]
    assert [var.name_hint for var, _ in module.functions_items()].count("deform_columns") == 1


GEOMETRIES = {
    "plain": {},
    "padded": {"pads": [1, 2, 1, 0]},
    "strided": {"strides": [2, 1], "dilations": [1, 2]},
    "offsets by group": {"offset_group": 2},
    "groups": {"group": 2, "pads": [1, 1, 1, 1]},
}
"""Name → attributes of a DeformConv."""


def constant_filters(attributes, mask, rng):
    """A DeformConv of 6 channels by constant filters of 3 x 2, and inputs for it."""
    top, left, bottom, right = attributes.get("pads", (0, 0, 0, 0))
    steps, spread = attributes.get("strides", (1, 1)), attributes.get("dilations", (1, 1))
    height = (9 + top + bottom - 2 * spread[0] - 1) // steps[0] + 1
    width = (8 + left + right - spread[1] - 1) // steps[1] + 1
    shared = attributes.get("offset_group", 1)
    feed = {"x": rng.standard_normal((2, 6, 9, 8)), "o": 3 * rng.standard_normal((2, 12 * shared, height, width))}
    if mask:
        feed["m"] = rng.random((2, 6 * shared, height, width))
    feed = {name: array.astype(np.float32) for name, array in feed.items()}
    weights = {"w": rng.standard_normal((10, 6 // attributes.get("group", 1), 3, 2)), "b": rng.standard_normal(10)}
    weights = {name: array.astype(np.float32) for name, array in weights.items()}
    node = helper.make_node("DeformConv", ["x", "w", "o", "b", *(["m"] if mask else [])], ["y"], **attributes)
    inputs = [value(name, array.shape) for name, array in feed.items()]
    return model_of([node], inputs, ["y"], weights, opset=19), feed


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("attributes", GEOMETRIES.values(), ids=GEOMETRIES)
def test_constant_filters_give_the_same(attributes, mask, tmp_path):
    model, feed = constant_filters(attributes, mask, np.random.default_rng(0))
    assert close(*run(model, tmp_path, feed))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("groups", [1, 2])
def test_computed_filters_give_the_same(groups, kind, tmp_path):
    model, feed = constant_filters({"group": groups, "pads": [1, 1, 1, 1]}, True, np.random.default_rng(0))
    feed |= {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    feed = {name: array.astype(kind) for name, array in feed.items()}
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    inputs = [value(name, feed[name].shape, number) for name in feed]
    computed = model_of(list(model.graph.node), inputs, ["y"], opset=19)
    computed.graph.output[0].type.tensor_type.elem_type = number
    assert close(*run(computed, tmp_path, feed))


def test_positions_outside_and_nan_count_as_in_onnxruntime(tmp_path):
    model, feed = constant_filters({"pads": [1, 1, 1, 1]}, False, np.random.default_rng(0))
    flat = feed["o"].reshape(-1)
    flat[:6] = np.nan, np.inf, -np.inf, 1e30, -1e30, -1.0
    ours, theirs = run(model, tmp_path, feed)
    assert all(np.allclose(a, b, atol=1e-4, equal_nan=True) for a, b in zip(ours, theirs, strict=True))


def test_constant_filters_are_a_matrix(tmp_path):
    model, _ = constant_filters({}, False, np.random.default_rng(0))
    templates = {task.template for task in imported(model, tmp_path).tasks}
    assert "matmul" in templates
    assert templates <= {"matmul", "elementwise"}
