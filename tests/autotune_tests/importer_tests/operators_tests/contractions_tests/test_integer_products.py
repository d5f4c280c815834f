"""Integer products are exact, whatever their types, zero points and borders."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.importer.conversion.bounds import bounded
from autotune.importer.operators.contractions.integer_products import BIAS, MOST_PARTS, with_biases
from tests.autotune_tests.importer_tests.built import multiply_bytes_as, run_ours
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

TYPES = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}
PAIRS = [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)]


@pytest.fixture(autouse=True, params=["uint8", "int8"])
def activations(request, monkeypatch):
    """The type that kernels multiply, which no result depends on."""
    multiply_bytes_as(request.param, monkeypatch)


def integers(dtype, *shape, seed=0):
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def sums(kind, data, weight, shape, *, as_inputs=(), **attributes):
    """A model of one product; ``as_inputs`` are names of weights that are inputs instead."""
    names = {"x": data, "w": weight, **shape}
    inputs = ["x", "w", *(name if name in shape else "" for name in ("zx", "zw"))]
    node = helper.make_node(kind, inputs, ["y"], "one", **attributes)
    feed = {name: names[name] for name in ("x", *as_inputs)}
    constants = {name: array for name, array in names.items() if name not in feed}
    interface = [value(name, array.shape, TYPES[array.dtype.type]) for name, array in feed.items()]
    model = model_of([node], interface, [], constants)
    model.graph.output.append(value("y", None, TensorProto.INT32))
    return model, feed


def check(model, feed, expected, folder):
    np.testing.assert_array_equal(run_ours(model, folder, feed)[0], expected)


def convolved(x, w, zx, zw, group=1, stride=1, pad=0):
    x, w = x.astype(np.int64) - int(zx), w.astype(np.int64) - zw.reshape(-1, 1, 1, 1).astype(np.int64)
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    per = w.shape[0] // group
    parts = [
        np.einsum("nchwij,ocij->nohw", windows[:, g * w.shape[1] : (g + 1) * w.shape[1]], w[g * per : (g + 1) * per])
        for g in range(group)
    ]
    return np.concatenate(parts, 1)


@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize("zero", ["none", "filters", "dynamic"])
def test_matrices(left, right, zero, tmp_path):
    x, w = integers(left, 2, 3, 20), integers(right, 20, 6, seed=1)
    zeros = {"zx": np.array(7, left), "zw": integers(right, 6, seed=2)}
    zeros = {name: zeros[name] for name in ("zx", "zw") if zero != "none"}
    model, feed = sums("MatMulInteger", x, w, zeros, as_inputs=("zx",) if zero == "dynamic" else ())
    wide = [
        array.astype(np.int64) - zeros.get(name, np.int64(0)).astype(np.int64) for array, name in ((x, "zx"), (w, "zw"))
    ]
    check(model, feed, wide[0] @ wide[1], tmp_path)


def test_a_product_of_two_activations_and_zero_points_of_rows(tmp_path):
    x, w = integers(np.uint8, 3, 5), integers(np.int8, 5, 4, seed=1)
    rows = integers(np.uint8, 3, seed=2)
    model, feed = sums("MatMulInteger", x, w, {"zx": rows}, as_inputs=("w",))
    check(model, feed, (x.astype(int) - rows.astype(int)[:, None]) @ w.astype(int), tmp_path)


@pytest.mark.parametrize("terms", [1, 257, 259, 600, 258 * MOST_PARTS + 1])
@pytest.mark.parametrize("zero", ["none", "constant", "dynamic"])
def test_products_of_two_activations_are_exact_for_any_number_of_terms(terms, zero, tmp_path):
    """The largest bytes have sums that are odd numbers above those that floats have."""
    x, w = integers(np.uint8, 2, 3, terms) // 4 + 192, integers(np.uint8, 2, terms, 4, seed=1) // 4 + 192
    x[0, 0], w[0, :, 0] = 255, 255
    zeros = {"zx": np.array(3, np.uint8), "zw": np.array(1, np.uint8)}
    zeros = {name: number for name, number in zeros.items() if zero != "none"}
    fed = ("w", "zx", "zw") if zero == "dynamic" else ("w",)
    model, feed = sums("MatMulInteger", x, w, zeros, as_inputs=fed)
    wide = [array.astype(np.int64) - int(zeros.get(name, 0)) for array, name in ((x, "zx"), (w, "zw"))]
    check(model, feed, wide[0] @ wide[1], tmp_path)


@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_images_with_borders(left, right, is_dynamic, tmp_path):
    x, w = integers(left, 1, 4, 6, 6), integers(right, 8, 4, 3, 3, seed=1)
    zeros = {"zx": np.array(9, left), "zw": integers(right, 8, seed=2)}
    model, feed = sums(
        "ConvInteger", x, w, zeros, as_inputs=("zx",) if is_dynamic else (), pads=[1] * 4, strides=[2, 2]
    )
    check(model, feed, convolved(x, w, zeros["zx"], zeros["zw"], stride=2, pad=1), tmp_path)


@pytest.mark.parametrize("right", TYPES)
def test_groups(right, tmp_path):
    x, w = integers(np.uint8, 1, 6, 5, 5), integers(right, 9, 2, 3, 3, seed=1)
    zeros = {"zx": np.uint8(200), "zw": integers(right, 9, seed=2)}
    model, feed = sums("ConvInteger", x, w, zeros, group=3, auto_pad="SAME_UPPER")
    check(model, feed, convolved(x, w, 200, zeros["zw"], group=3, pad=1), tmp_path)


@pytest.mark.parametrize("rank", [1, 3])
def test_images_of_other_ranks(rank, tmp_path):
    x, w = integers(np.uint8, 1, 3, *[5] * rank), integers(np.int8, 4, 3, *[1] * rank, seed=1)
    model, feed = sums("ConvInteger", x, w, {"zx": np.uint8(3)})
    flat = np.einsum("nc...,oc->no...", x.astype(int) - 3, w.reshape(4, 3).astype(int))
    check(model, feed, flat, tmp_path)


def test_weights_that_are_inputs(tmp_path):
    x, w = integers(np.uint8, 1, 2, 4, 4), integers(np.uint8, 3, 2, 2, 2, seed=1)
    model, feed = sums("ConvInteger", x, w, {"zx": np.uint8(5)}, as_inputs=("w",), pads=[1] * 4)
    check(model, feed, convolved(x, w, 5, np.zeros(3), pad=1), tmp_path)


def test_a_bias_joins_the_product(tmp_path):
    x, w = integers(np.uint8, 2, 5), integers(np.int8, 5, 4, seed=1)
    model, feed = sums("MatMulInteger", x, w, {"zx": np.uint8(77)})
    bias = np.arange(4, dtype=np.int32) * 1000
    model.graph.node[0].output[0] = "sums"
    model.graph.node.append(helper.make_node("Add", ["sums", "b"], ["y"], "bias"))
    model.graph.initializer.append(numpy_helper.from_array(bias, "b"))
    model.graph.value_info.append(value("sums", (2, 4), TensorProto.INT32))
    del model.graph.output[:]
    model.graph.output.append(value("y", (2, 4), TensorProto.INT32))
    joined = with_biases(bounded(model), "uint8").graph.node
    assert [(node.op_type, node.input[BIAS]) for node in joined] == [("MatMulInteger", "b")]
    check(model, feed, (x.astype(int) - 77) @ w.astype(int) + bias, tmp_path)
