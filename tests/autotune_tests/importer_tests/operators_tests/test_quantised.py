"""Quantised operators are arithmetic on what they stand for."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.autotune_tests.importer_tests.built import close, imported, run, run_all
from tests.autotune_tests.importer_tests.onnx_cases import model_of, rewritten, value

RNG = np.random.default_rng(0)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize("axis", [None, 1])
def test_a_pair_of_quantise_and_dequantise(dtype, axis, tmp_path):
    limits = np.iinfo(dtype)
    zeros = limits.min + np.array([0.01, 0.5, 0.99]) * (limits.max - limits.min)
    scales = np.array([0.1, 0.2, 0.4]) * 255 / (limits.max - limits.min)
    weights = {"s": scales.astype(np.float32), "z": zeros.astype(dtype)}
    if axis is None:
        weights = {name: values[1] for name, values in weights.items()}
    attributes = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    model = model_of(nodes, [value("x", (5, 3))], ["y"], weights, 21)
    ours, theirs = run(model, tmp_path, {"x": 20 * array(5, 3)})
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert "where" not in imported(model, tmp_path).tasks[0].name, "no detour for numbers that are not finite"


def test_halves_are_rounded_to_even_and_what_is_beyond_the_range_is_held_there(tmp_path):
    weights = {"s": np.float32(0.5), "z": np.uint8(10)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])]
    model = model_of(nodes, [value("x", (6,))], [], weights)
    model.graph.output.append(value("y", (6,), TensorProto.UINT8))
    x = np.array([0.25, 0.75, -0.25, -0.75, 1e9, -1e9], np.float32)
    ours, theirs = run(model, tmp_path, {"x": x})
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert ours[0].tolist() == [10, 12, 10, 8, 255, 0]


def test_by_a_scale_of_zero_every_number_is_beyond_the_range(tmp_path):
    weights = {"s": np.float32(0), "z": np.uint8(10)}
    model = model_of([helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])], [value("x", (4,))], [], weights)
    model.graph.output.append(value("y", (4,), TensorProto.UINT8))
    ours, theirs = run(model, tmp_path, {"x": np.array([1, -1, 1e-30, -3], np.float32)})
    assert ours[0].tolist() == theirs[0].tolist() == [255, 0, 255, 0]


def test_quantisers_of_other_types_are_rewritten(tmp_path):
    weights = {"s": np.float16(0.1), "z": np.int8(-30)}
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("QuantizeLinear", ["h", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Cast", ["d"], ["y"], to=TensorProto.FLOAT),
    ]
    counts = rewritten(model_of(nodes, [value("x", (2, 3))], ["y"], weights, 21), tmp_path, {"x": 10 * array(2, 3)})
    assert not counts.keys() & {"QuantizeLinear", "DequantizeLinear"}


def test_a_dynamic_scale_comes_from_onnx_own_function(tmp_path):
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    counts = rewritten(model_of(nodes, [value("x", (3, 4))], ["y"]), tmp_path, {"x": array(3, 4)})
    assert "DynamicQuantizeLinear" not in counts


def test_the_dynamic_scale_of_zeros_is_one(tmp_path):
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "y", "z"])]
    model = model_of(nodes, [value("x", (3,))], ["y"])
    for kind, name in ((TensorProto.UINT8, "q"), (TensorProto.UINT8, "z")):
        model.graph.output.append(value(name, (3,) if name == "q" else (), kind))
    feeds = [{"x": np.full(3, number, np.float32)} for number in (0, 2, -2)]
    assert all(close(*outputs) for outputs in run_all(model, tmp_path, feeds))
