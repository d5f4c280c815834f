"""Largest and smallest elements, bounds and ranks."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.autotune_tests.importer_tests.built import close, imported, run, run_ours
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def test_reductions_return_infinity(tmp_path):
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["m"], axes=[1]),
        helper.make_node("ReduceMin", ["x"], ["n"], axes=[0]),
    ]
    x = np.array([[-np.inf, -np.inf, -np.inf], [1, np.inf, 2]], np.float32)
    assert close(*run(model_of(nodes, [value("x", (2, 3))], ["m", "n"]), tmp_path, {"x": x}))


@pytest.mark.parametrize("row", [[-np.inf] * 80, [np.inf, *[-1.0] * 79], [-0.0, *[-3.5] * 79], [1e-40, *[-2.0] * 79]])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_whole_tensors_are_reduced_row_by_row(tmp_path, row, keepdims):
    nodes = [helper.make_node(kind, ["x"], [kind], keepdims=keepdims) for kind in ("ReduceMax", "ReduceMin")]
    x = np.array([row, [-7.25, *[-np.inf] * 79], row], np.float32)
    model = model_of(nodes, [value("x", x.shape)], ["ReduceMax", "ReduceMin"])
    assert close(*run(model, tmp_path, {"x": x}))
    assert close(*run(model, tmp_path, {"x": -x}))


def test_a_bound_that_is_left_out_does_not_bind(tmp_path):
    nodes = [
        helper.make_node("Clip", ["x", "", "high"], ["a"]),
        helper.make_node("Clip", ["x", "low"], ["b"]),
        helper.make_node("Max", ["a", "b", "low"], ["c"]),
    ]
    weights = {"low": np.array(-0.5, np.float32), "high": np.array(0.5, np.float32)}
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    assert close(*run(model_of(nodes, [value("x", (3, 4))], ["a", "b", "c"], weights), tmp_path, {"x": x}))


def test_equal_elements_are_ranked_in_their_order(tmp_path):
    nodes = [helper.make_node("TopK", ["x", "k"], ["v", "i"])]
    model = model_of(nodes, [value("x", (2, 5))], ["v"], {"k": np.array([3])})
    model.graph.output.append(value("i", (2, 3), TensorProto.INT64))
    x = np.array([[1, 3, 3, 2, 3], [5, 5, 4, 5, 0]], np.float32)
    assert close(*run(model, tmp_path, {"x": x}))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(("shape", "axis", "count"), [((2, 9, 4, 8), 1, 3), ((7, 40), 0, 1), ((3, 5, 16), 1, 5)])
def test_few_elements_along_other_axes(tmp_path, dtype, largest, shape, axis, count):
    """Equal ones in their order, zeros of both signs and infinities too."""
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)
    if dtype == "float32":
        x[x == 2], x[x == -3], x[x == 1] = np.inf, -np.inf, -0.0
    nodes = [helper.make_node("TopK", ["x", "k"], ["v", "i"], largest=largest, axis=axis)]
    kind, sizes = helper.np_dtype_to_tensor_dtype(x.dtype), [count if i == axis else n for i, n in enumerate(shape)]
    model = model_of(nodes, [value("x", shape, kind)], ["v"], {"k": np.array([count])})
    model.graph.output[0].type.tensor_type.elem_type = kind
    model.graph.output.append(value("i", sizes, TensorProto.INT64))
    assert close(*run(model, tmp_path, {"x": x}))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "int64", "uint8"])
@pytest.mark.parametrize("largest", [0, 1])
def test_long_rows_of_every_type(tmp_path, dtype, largest):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((3, 9000)) * 50 + (60 if dtype == "uint8" else 0)).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    nodes = [helper.make_node("TopK", ["x", "k"], ["v", "i"], largest=largest)]
    model = model_of(nodes, [value("x", x.shape, kind)], ["v"], {"k": np.array([40])})
    model.graph.output[0].type.tensor_type.elem_type = kind
    model.graph.output.append(value("i", (3, 40), TensorProto.INT64))
    if dtype in ("float16", "uint8"):  # ONNX Runtime has none of these
        (values, places), order = (
            run_ours(model, tmp_path, {"x": x}),
            np.argsort(-x.astype(float) if largest else x, 1, "stable"),
        )
        assert np.array_equal(places, order[:, :40])
        assert np.array_equal(values, np.take_along_axis(x, places, 1))
    else:
        assert close(*run(model, tmp_path, {"x": x}))


@pytest.mark.parametrize("axis", [1, 2])
def test_both_kernels_of_an_index_are_computed_row_by_row(axis, tmp_path):
    nodes = [helper.make_node("ArgMax", ["x"], ["y"], axis=axis, keepdims=0)]
    nodes.append(helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT))
    program = imported(model_of(nodes, [value("x", (4, 64, 128))], ["z"]), tmp_path)
    assert [space.identity.partition("/")[0] for space in program.spaces.values()].count("rows") == 2


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
def test_an_index_of_what_is_computed_from_bytes(kind, tmp_path):
    """Both kernels read the same numbers: the extreme of other roundings would be no element."""
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Sigmoid", ["d"], ["p"]),
        helper.make_node(kind, ["p"], ["i"], axis=1, keepdims=0),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    weights = {"s": np.array(0.03, np.float32), "z": np.array(128, np.uint8)}
    model = model_of(nodes, [value("q", (40, 300), TensorProto.UINT8)], ["y"], weights)
    q = np.random.default_rng(0).integers(0, 256, (40, 300)).astype(np.uint8)
    ours, theirs = run(model, tmp_path, {"q": q})
    found, right = (np.take_along_axis(q, y[0][:, None].astype(np.int64), 1) for y in (ours, theirs))
    assert np.array_equal(found, right)


@pytest.mark.parametrize(("shape", "axis"), [((0, 5), 1), ((4, 1, 6), 1), ((30000,), 0)])
def test_the_index_of_no_rows_of_one_element_and_of_a_long_axis(shape, axis, tmp_path):
    nodes = [helper.make_node("ArgMin", ["x"], ["i"], axis=axis, keepdims=0)]
    nodes.append(helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    assert close(*run(model_of(nodes, [value("x", shape)], ["y"]), tmp_path, {"x": x}))
