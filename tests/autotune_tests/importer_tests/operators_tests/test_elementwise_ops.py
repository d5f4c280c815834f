"""Elementwise operators are rewritten into what Relax imports right."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.importer.load import load_model
from autotune.importer.program import simplify
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, rewritten, value, written

RNG = np.random.default_rng(0)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind", ["Cosh", "Sinh", "Softplus", "IsInf"])
def test_of_one_input(tmp_path, kind):
    x = np.array([[-40, -1, 0, np.inf], [1, 2, 40, -np.inf]], np.float32)
    model = model_of([helper.make_node(kind, ["x"], ["y"])], [value("x", (2, 4))], [])
    model.graph.output.append(value("y", (2, 4), TensorProto.BOOL if kind == "IsInf" else TensorProto.FLOAT))
    assert kind not in rewritten(model, tmp_path, {"x": x if kind == "IsInf" else np.clip(x, -40, 40)})


@pytest.mark.parametrize("kind", ["Softplus", "Mish"])
def test_one_power_is_as_exact_as_its_definition(tmp_path, kind):
    """Over the whole range, NaN and infinities too; ``Mish`` of −∞ is −∞ · 0."""
    x = np.concatenate([np.linspace(-80, 80, 4001), [np.nan, np.inf, -np.inf, -1e30, 1e30, 0.0]]).astype(np.float32)
    model = model_of([helper.make_node(kind, ["x"], ["y"])], [value("x", x.shape)], [], opset=18)
    model.graph.output.append(value("y", x.shape))
    (output,), _ = run(model, tmp_path, {"x": x})
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        softplus = np.maximum(wide, 0) + np.log1p(np.exp(-np.abs(wide)))
        expected = softplus if kind == "Softplus" else wide * np.tanh(softplus)
    np.testing.assert_allclose(output, expected, rtol=2e-6, atol=1e-36)


@pytest.mark.parametrize("kind", ["Equal", "LessOrEqual", "GreaterOrEqual"])
def test_what_is_not_itself_is_no_number(tmp_path, kind):
    """``x != x`` is how some exporters write isnan."""
    x = np.array([[0, 1, np.nan, np.inf], [np.nan, -1, 2, -np.inf]], np.float32)
    nodes = [helper.make_node(kind, ["x", "x"], ["e"]), helper.make_node("Not", ["e"], ["y"])]
    model = model_of(nodes, [value("x", (2, 4))], [])
    model.graph.output.append(value("y", (2, 4), TensorProto.BOOL))
    (output,), (expected,) = run(model, tmp_path, {"x": x})
    assert output.tolist() == expected.tolist() == np.isnan(x).tolist()


def test_sums_are_made_two_at_a_time(tmp_path):
    nodes = [helper.make_node("Sum", ["x", "c", "x"], ["y"])]
    counts = rewritten(model_of(nodes, [value("x", (2, 3))], ["y"], {"c": array(3)}), tmp_path, {"x": array(2, 3)})
    assert counts == {"Add": 2}


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(tmp_path, axis):
    nodes = [helper.make_node("OneHot", ["i", "depth", "values"], ["y"], axis=axis)]
    weights = {"depth": np.array(5), "values": np.array([-1, 2], np.float32)}
    model = model_of(nodes, [value("i", (2, 3), TensorProto.INT64)], ["y"], weights)
    assert "OneHot" not in rewritten(model, tmp_path, {"i": np.array([[0, 4, -1], [2, -5, 1]])})


def test_float_mod_has_the_sign_of_the_divisor_where_onnx_says_so(tmp_path):
    nodes = [helper.make_node("Mod", ["x", "d"], ["y"], fmod=1)]
    model = model_of(nodes, [value("x", (4,))], ["y"], {"d": np.array([3, -3, 3, -3], np.float32)})
    assert rewritten(model, tmp_path, {"x": np.array([5, 5, -5, -5], np.float32)}) == {"Mod": 1}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_determinants_of_small_matrices(tmp_path, size):
    model = model_of([helper.make_node("Det", ["x"], ["y"])], [value("x", (2, size, size))], ["y"])
    assert "Det" not in rewritten(model, tmp_path, {"x": array(2, size, size)})


@pytest.mark.parametrize("kind", ["And", "Or", "Xor", "Equal"])
def test_booleans_that_are_read_go_with_booleans_that_are_compared(tmp_path, kind):
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["compared"]),
        helper.make_node(kind, ["compared", "given"], ["made"]),
        helper.make_node("Cast", ["made"], ["y"], to=TensorProto.FLOAT),
    ]
    info = value("given", (4, 16), TensorProto.BOOL)
    model = model_of(nodes, [value("x", (4, 16)), info], ["y"], {"zero": np.zeros((), np.float32)})
    assert close(*run(model, tmp_path, {"x": array(4, 16), "given": array(4, 16) > 0}))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_slopes_of_whole_numbers(dtype, tmp_path):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = np.array([[-3, 0, 7], [2, -1, -5]]).astype(dtype)
    nodes = [helper.make_node("PRelu", ["x", "s"], ["y"])]
    model = model_of(nodes, [value("x", (2, 3), kind)], [], {"s": np.array([2, 3, 0], dtype)})
    model.graph.output.append(value("y", (2, 3), kind))
    assert close(*run(model, tmp_path, {"x": x}))


@pytest.mark.parametrize("shape", [(1,), (1, 1), (3,)])
@pytest.mark.parametrize("least", [-0.5, 0.0, 0.25, 1.7])
def test_slopes_of_floats(least, shape, tmp_path):
    x = np.array([[-3, 0, 7], [np.nan, -np.inf, np.inf]], np.float32)
    slope = np.linspace(least, 2, shape[-1], dtype=np.float32).reshape(shape)
    model = model_of([helper.make_node("PRelu", ["x", "s"], ["y"])], [value("x", (2, 3))], ["y"], {"s": slope})
    (output,), (expected,) = run(model, tmp_path, {"x": x})
    np.testing.assert_array_equal(output, expected)


def test_celu_of_the_largest_numbers(tmp_path):
    model = model_of([helper.make_node("Celu", ["x"], ["y"], alpha=0.5)], [value("x", (5,))], ["y"])
    x = np.array([3.4e38, -3.4e38, np.inf, -np.inf, np.nan], np.float32)
    (output,), (expected,) = run(model, tmp_path, {"x": x})
    np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("shape", [(), (2, 3)])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_celu_of_any_shape(shape, alpha, tmp_path):
    x = np.array(array(*shape) - 1, np.float32)
    ours, theirs = run(
        model_of([helper.make_node("Celu", ["x"], ["y"], alpha=alpha)], [value("x", shape)], ["y"]), tmp_path, {"x": x}
    )
    assert ours[0].shape == shape
    assert close(ours, theirs)


@pytest.mark.parametrize("is_input", [True, False], ids=["an input", "computed"])
def test_sizes_of_a_split_that_no_constant_says_are_refused_by_name(tmp_path, is_input):
    nodes = [helper.make_node("Split", ["x", "s"], ["y", "z"], "cut", axis=1)]
    inputs = [value("x", (2, 8)), value("s" if is_input else "t", (2,), TensorProto.INT64)]
    if not is_input:
        nodes.insert(0, helper.make_node("Abs", ["t"], ["s"]))
    path = written(model_of(nodes, inputs, ["y", "z"], opset=18), tmp_path)
    with pytest.raises(ModelError, match=r"operator Split \(node 'cut'\) .*split 's' is computed from the inputs"):
        simplify(load_model(path))
