"""Models in 64 bits: what is widened, what is kept, what noise does."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.validation import reference_runs
from autotune.validation.arithmetic.model_work import multiplications
from autotune.validation.reference_runs import Reference, reference_outputs
from autotune.validation.widen import NOISE, NotWidenedError, is_short, widen

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs, outputs, weights=(), opset=17):
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(weights).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def run(model, **feed):
    return reference_outputs(model, {name: np.asarray(array) for name, array in feed.items()})[1]


def quantiser(kind, zero, scale=0.5, axis=None, shape=(2, 12)):
    attributes = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    weights = {"s": np.asarray(scale, np.float32), "z": np.asarray(zero, kind)}
    code = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    return model_of(
        nodes, [value("x", FLOAT, shape)], [value("q", code, shape), value("y", FLOAT, shape)], weights, opset=21
    )


# Ties, both bounds and beyond; quotients by 0.5 are exact in 32 bits too.
X = np.array([[0.25, 0.75, -0.25, -0.75, 1.25, 0.0, 63.5, 64.0, 200.0, -64.0, -64.25, -300.0]] * 2, np.float32)


@pytest.mark.parametrize(
    ("kind", "zero"), [(np.uint8, 128), (np.uint8, 0), (np.int8, 0), (np.int8, -5), (np.uint16, 7)]
)
def test_quantisers_round_as_onnx_says(kind, zero):
    model = quantiser(kind, zero)
    wide, noisy = widen(model)
    assert noisy
    codes, values = run(model, x=X)
    exact_codes, exact = run(wide, x=X.astype(np.float64), **{NOISE: 0.0})
    assert exact_codes.dtype == codes.dtype
    assert np.array_equal(codes, exact_codes)
    assert np.array_equal(values, exact)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_quantisers_along_an_axis(axis):
    size = X.shape[axis]
    model = quantiser(np.int8, np.arange(size), 2.0 ** -np.arange(size).clip(0, 4), axis)
    assert np.array_equal(run(model, x=X)[1], run(widen(model)[0], x=X.astype(np.float64), **{NOISE: 0.0})[1])


def test_noise_moves_only_what_is_nearly_a_tie():
    model = quantiser(np.uint8, 128, shape=(1, 5000))
    x = np.linspace(-60.0, 60.0, 5000)[None] + 0.01
    x[0, :50] = 0.5 * (np.arange(50) + 0.5) + 1e-6
    wide = widen(model)[0]
    still, moved = (run(wide, x=x, **{NOISE: noise})[0].astype(int) for noise in (0.0, 1.0))
    changed = still != moved
    assert 5 <= changed[0, :50].sum() <= 45
    assert changed[0, 50:].sum() <= 10
    assert np.abs(still - moved).max() == 1


def test_dynamic_quantisation_is_moved_too():
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    kinds = (("q", TensorProto.UINT8, (1, 64)), ("s", FLOAT, ()), ("z", TensorProto.UINT8, ()))
    model = model_of(nodes, [value("x", FLOAT, (1, 64))], [value(*kind) for kind in kinds])
    x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    wide, noisy = widen(model)
    exact, same = run(wide, x=x.astype(np.float64), **{NOISE: 0.0}), run(model, x=x)
    assert noisy
    assert exact[1].dtype == np.float64
    assert all(np.array_equal(one, other) for one, other in zip(exact, same, strict=True))


def test_operators_without_a_kernel_of_64_bits_run_in_32():
    nodes = [helper.make_node("Erf", ["x"], ["e"]), helper.make_node("Add", ["e", "tiny"], ["y"])]
    weights = {"tiny": np.float32(1e-12)}
    model = model_of(nodes, [value("x", FLOAT, (3,))], [value("y", FLOAT, (3,))], weights)
    x = np.array([0.1, 0.5, -2.0])
    (exact,) = run(widen(model)[0], x=x.astype(np.float32))  # which only Erf reads: it stays as it is
    (narrow,) = run(model, x=x.astype(np.float32))
    assert exact.dtype == np.float64
    assert np.abs(exact - narrow).max() < 1e-7
    assert np.any(exact != exact.astype(np.float32))  # the sum kept what 32 bits lose


def test_casts_and_constants_are_widened():
    nodes = [
        helper.make_node("Constant", [], ["c"], value_float=0.1),
        helper.make_node("Constant", [], ["v"], value=numpy_helper.from_array(np.array([0.1], np.float16))),
        helper.make_node("Cast", ["v"], ["w"], to=FLOAT),
        helper.make_node("Cast", ["x"], ["h"], to=HALF),
        helper.make_node("Cast", ["h"], ["f"], to=FLOAT),
        helper.make_node("Sum", ["f", "c", "w"], ["y"]),
    ]
    model = model_of(nodes, [value("x", FLOAT, (1,))], [value("y", FLOAT, (1,))])
    (exact,) = run(widen(model)[0], x=np.array([1e-9]))
    assert exact[0] == 1e-9 + float(np.float32(0.1)) + float(np.float16(0.1))


def short_model():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Tanh", ["m"], ["y"])]
    weights = {"w": np.random.default_rng(0).standard_normal((8, 8)).astype(np.float16)}
    return model_of(nodes, [value("x", HALF, (4, 8))], [value("y", HALF, (4, 8))], weights)


def test_16_bits_are_rounded_where_asked():
    model = short_model()
    x = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float16)
    wide = x.astype(np.float64)
    weight = numpy_helper.to_array(model.graph.initializer[0]).astype(np.float64)
    (exact,), (rounded,) = (run(widen(model, short)[0], x=wide) for short in (False, True))
    assert np.abs(exact - np.tanh(wide @ weight)).max() < 1e-14
    product = (wide @ weight).astype(np.float16).astype(np.float64)
    assert np.array_equal(rounded, np.tanh(product).astype(np.float16).astype(np.float64))


def test_which_models_are_short():
    assert is_short(short_model())
    assert not is_short(quantiser(np.uint8, 0))


def test_multiplications_are_counted():
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"]),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("Gemm", ["f", "m"], ["g"]),
        helper.make_node("MatMul", ["g", "n"], ["y"]),
    ]
    weights = {
        "k": np.zeros((4, 3, 3, 3), np.float32),
        "m": np.zeros((36, 5), np.float32),
        "n": np.zeros((5, 7), np.float32),
    }
    model = model_of(nodes, [value("x", FLOAT, (2, 3, 5, 5))], [value("y", FLOAT, (2, 7))], weights)
    assert multiplications(model) == 2 * 4 * 9 * 27 + 2 * 5 * 36 + 2 * 7 * 5


def test_the_model_itself_stays():
    model = short_model()
    before = model.SerializeToString()
    widen(model, rounded=True)
    assert model.SerializeToString() == before


def chosen(then, other):
    """An If between branches whose last nodes make ``t``; inner names are the same on both sides."""
    bodies = [
        helper.make_graph(nodes, name, [], [value("t", FLOAT, (2, 5))])
        for nodes, name in ((then, "then"), (other, "other"))
    ]
    return helper.make_node("If", ["c"], ["y"], then_branch=bodies[0], else_branch=bodies[1])


@pytest.mark.parametrize("c", [True, False])
def test_both_branches_of_an_if_are_in_64_bits(c):
    """One reads a product, the other an If of its own; the sums cancel, so that 32 bits have few right digits."""
    then = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Sub", ["p", "near"], ["t"]),
    ]
    inner = chosen([helper.make_node("Relu", ["x"], ["t"])], [helper.make_node("Identity", ["x"], ["t"])])
    inner.output[0] = "p"
    other = [inner, helper.make_node("Mul", ["p", "p"], ["t"])]
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 5)).astype(np.float32), 1e3 * rng.standard_normal((5, 5)).astype(np.float32)
    near = (x @ w).astype(np.float32)
    inputs = [value("x", FLOAT, (2, 5)), value("c", TensorProto.BOOL, ())]
    model = model_of([chosen(then, other)], inputs, [value("y", FLOAT, (2, 5))], {"w": w, "near": near})
    wide, x = onnxruntime.InferenceSession(widen(model)[0].SerializeToString()), x.astype(np.float64)
    (exact,) = wide.run(None, {"x": x, "c": np.array(c)})
    wanted = x @ w.astype(np.float64) - near if c else np.square(x)
    np.testing.assert_allclose(exact, wanted, rtol=1e-12, atol=1e-9)


def test_graphs_that_run_several_times_are_refused_by_name():
    body = helper.make_graph(
        [helper.make_node("Identity", ["k"], ["l"]), helper.make_node("Neg", ["v"], ["u"])],
        "body",
        [value("i", TensorProto.INT64, ()), value("k", TensorProto.BOOL, ()), value("v", FLOAT, (1,))],
        [value("l", TensorProto.BOOL, ()), value("u", FLOAT, (1,))],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    inputs = [value("x", FLOAT, (1,)), value("n", TensorProto.INT64, ())]
    with pytest.raises(NotWidenedError, match="a Loop with a graph of its own"):
        widen(model_of([node], inputs, [value("y", FLOAT, (1,))]))


def packed_product():
    """A product whose activations are rounded to bytes, and its square; what it reads, and what is exact."""
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 256, (24, 2, 16)).astype(np.uint8)
    scales = rng.random(48).astype(np.float32)
    sizes = {"K": 64, "N": 24, "bits": 4, "block_size": 32, "accuracy_level": 4}
    nodes = [
        helper.make_node("MatMulNBits", ["x", "levels", "scales"], ["product"], domain="com.microsoft", **sizes),
        helper.make_node("Mul", ["product", "product"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "packed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 24])],
        [numpy_helper.from_array(levels, "levels"), numpy_helper.from_array(scales, "scales")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    x = rng.standard_normal((3, 64)).astype(np.float32)
    halves = np.stack([levels & 15, levels >> 4], -1).reshape(24, 64).astype(np.float64) - 8
    weights = halves * np.repeat(scales.reshape(24, 2), 32, axis=1)
    return model, {"x": x}, (x.astype(np.float64) @ weights.T) ** 2


@pytest.mark.parametrize(("limit", "bound"), [(None, "fp64"), (100, "spread")])
def test_products_by_packed_weights_are_exact_though_their_model_rounds_to_bytes(monkeypatch, limit, bound):
    """Behind operators of com.microsoft ONNX's inference knows no type; a cache is read in 32 bits alone."""
    model, feed, expected = packed_product()
    if limit is not None:  # what is too large for 64 bits is computed without its roundings all the same
        monkeypatch.setattr(reference_runs, "WIDENED_BYTES", limit)
    allowance = Reference(model).allowance(feed)
    assert allowance is not None
    assert allowance.bound == bound
    np.testing.assert_allclose(allowance.exact[0], expected, rtol=1e-5, atol=1e-4)
    assert all(np.abs(sample[0] - expected).max() > 1e-2 for sample in allowance.samples[:2])
    assert allowance.accepts(0, allowance.samples[0][0])
    assert not allowance.accepts(0, allowance.samples[0][0] + np.float32(0.5 * np.std(expected)))


def test_states_by_weights_of_bytes_are_those_of_the_lstm_before_it_was_quantised():
    rng = np.random.default_rng(0)
    bytes_of = {"w": (1, 4, 64), "r": (1, 16, 64)}
    weights = {name: rng.integers(-128, 128, shape).astype(np.int8) for name, shape in bytes_of.items()}
    scale, zero = np.array([0.01], np.float32), np.array([2], np.int8)
    x = rng.standard_normal((5, 2, 4)).astype(np.float32)

    def lstm(kind, arrays, inputs, domain=""):
        node = helper.make_node(kind, inputs, ["y"], domain=domain, hidden_size=16)
        return model_of([node], [value("x", FLOAT, x.shape)], [value("y", FLOAT, (5, 1, 2, 16))], arrays)

    plain = {name: ((array - 2.0) * 0.01).transpose(0, 2, 1).astype(np.float32) for name, array in weights.items()}
    expected = run(lstm("LSTM", plain, ["x", "w", "r"]), x=x)[0]
    quantised = {**weights, "ws": scale, "wz": zero, "rs": scale, "rz": zero}
    inputs = ["x", "w", "r", *[""] * 5, "ws", "wz", "rs", "rz"]
    allowance = Reference(lstm("DynamicQuantizeLSTM", quantised, inputs, "com.microsoft")).allowance({"x": x})
    assert allowance is not None
    np.testing.assert_allclose(allowance.exact[0], expected, atol=1e-5)
    assert any(np.abs(sample[0] - expected).max() > 1e-3 for sample in allowance.samples)
