"""Operators that draw: the kernels and the reference engine are compared on the same noise, and a session draws it."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.importer.load import load_model
from autotune.validation.reference_runs import Reference
from autotune.validation.verify import compare_session

ROWS, COLUMNS = 64, 500
FLOAT, DOUBLE, HALF = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16
INT32, INT64, BOOL = TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL


def model_of(node, kind, shape, inputs=(), constants=(), before=(), opset=18):
    """A model whose output ``y`` is what ``node`` draws."""
    values = [helper.make_tensor_value_info(name, dtype, size) for name, dtype, size in inputs]
    out = [helper.make_tensor_value_info("y", kind, shape)]
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants]
    graph = helper.make_graph([*before, node], "drawn", values, out, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def drawing(kind, *inputs, **attributes):
    return helper.make_node(kind, list(inputs), ["y"], "drawn", **attributes)


SIZE = [ROWS, COLUMNS]
X = [("x", FLOAT, SIZE)]
LOGITS = np.log(np.array([[0.5, 0.1, 0.4, 1e-30]], np.float32)) + 3

CASES = {
    "normal": (model_of(drawing("RandomNormal", shape=SIZE, mean=2.0, scale=0.5), FLOAT, SIZE), 2.0, 0.5),
    "normal of fp64": (model_of(drawing("RandomNormal", shape=SIZE, dtype=DOUBLE), DOUBLE, SIZE), 0.0, 1.0),
    "normal of fp16": (model_of(drawing("RandomNormal", shape=SIZE, dtype=HALF, mean=1.0), HALF, SIZE), 1.0, 1.0),
    "normal like": (model_of(drawing("RandomNormalLike", "x", scale=3.0), FLOAT, SIZE, X), 0.0, 3.0),
    "normal like integers": (
        model_of(drawing("RandomNormalLike", "x", dtype=FLOAT), FLOAT, SIZE, [("x", INT64, SIZE)]),
        0.0,
        1.0,
    ),
    "normal of opset 9": (model_of(drawing("RandomNormalLike", "x"), FLOAT, SIZE, X, opset=9), 0.0, 1.0),
    "uniform": (model_of(drawing("RandomUniform", shape=SIZE, low=-1.0, high=3.0), FLOAT, SIZE), 1.0, 4 / 12**0.5),
    "uniform like": (model_of(drawing("RandomUniformLike", "x"), FLOAT, SIZE, X), 0.5, 1 / 12**0.5),
    "bernoulli": (
        model_of(drawing("Bernoulli", "p"), FLOAT, SIZE, constants=[("p", np.full(SIZE, 0.3, np.float32))]),
        0.3,
        0.21**0.5,
    ),
    "bernoulli as integers": (
        model_of(
            drawing("Bernoulli", "p", dtype=INT32), INT32, SIZE, constants=[("p", np.full(SIZE, 0.8, np.float64))]
        ),
        0.8,
        0.4,
    ),
    "multinomial": (
        model_of(
            drawing("Multinomial", "l", sample_size=COLUMNS, dtype=INT64),
            INT64,
            SIZE,
            constants=[("l", np.repeat(LOGITS, ROWS, 0))],
        ),
        0.9,
        0.89**0.5,
    ),
    "dropout": (
        model_of(
            drawing("Dropout", "one", "ratio", "training"),
            FLOAT,
            SIZE,
            constants=[
                ("one", np.ones(SIZE, np.float32)),
                ("ratio", np.float32(0.2)),
                ("training", np.array(True)),
            ],
        ),
        1.0,
        0.5,
    ),
    "dropout by default, in fp16": (
        model_of(
            drawing("Dropout", "one", "", "training"),
            HALF,
            SIZE,
            constants=[("one", np.ones(SIZE, np.float16)), ("training", np.array(True))],
            opset=13,
        ),
        1.0,
        1.0,
    ),
    "of a size that folding finds": (
        model_of(
            drawing("RandomUniformLike", "z"),
            FLOAT,
            SIZE,
            X,
            before=[
                helper.make_node("Shape", ["x"], ["s"]),
                helper.make_node("Cast", ["s"], ["f"], to=FLOAT),
                helper.make_node("Cast", ["f"], ["n"], to=INT64),
                helper.make_node("ConstantOfShape", ["n"], ["z"]),
            ],
        ),
        0.5,
        1 / 12**0.5,
    ),
}
"""Models, and the mean and deviation of what they draw."""


def feed_of(session):
    return {arg.name: np.zeros(arg.shape, arg.dtype) for arg in session.get_inputs()}


@pytest.mark.parametrize("case", CASES)
def test_what_is_drawn_has_its_distribution_and_is_verified(case, tiny_build, tmp_path):
    model, mean, deviation = CASES[case]
    session = tiny_build(model)
    verdict = compare_session(session, Reference(load_model(tmp_path / "model.onnx")))
    assert verdict.passed, verdict.difference
    one, two = (session.run(None, feed_of(session))[0] for _ in range(2))
    kind = helper.tensor_dtype_to_np_dtype(model.graph.output[0].type.tensor_type.elem_type)
    assert (one.shape, one.dtype) == ((ROWS, COLUMNS), kind)
    assert (one != two).any()
    for drawn in (one, two):
        few = deviation / (ROWS * COLUMNS) ** 0.5  # the deviation of the mean
        assert abs(drawn.mean(dtype=np.float64) - mean) < 5 * few + 1e-3 * (kind == np.float16)
        assert abs(drawn.std(dtype=np.float64) / deviation - 1) < 0.02


def test_uniform_numbers_stay_in_their_range(tiny_build):
    (drawn,) = tiny_build(CASES["uniform"][0]).run(None, {})
    assert drawn.min() >= -1
    assert drawn.max() < 3
    assert np.histogram(drawn, 8, (-1, 3))[0] / drawn.size == pytest.approx([1 / 8] * 8, rel=0.05)


def test_a_class_without_probability_is_never_drawn(tiny_build):
    (drawn,) = tiny_build(CASES["multinomial"][0]).run(None, {})
    shares = np.bincount(drawn.reshape(-1), minlength=4) / drawn.size
    assert shares == pytest.approx([0.5, 0.1, 0.4, 0], abs=0.015)
    assert shares[3] == 0


def test_a_probability_of_zero_or_one_is_certain(tiny_build):
    p = np.zeros((4, 1000), np.float32)
    p[1:3] = 1
    node = drawing("Bernoulli", "p", dtype=BOOL)
    (drawn,) = tiny_build(model_of(node, BOOL, [4, 1000], [("p", FLOAT, [4, 1000])])).run(None, {"p": p})
    assert (drawn == (p == 1)).all()


@pytest.mark.parametrize("flag", [True, False])
def test_training_may_be_an_input(flag, tiny_build):
    node = helper.make_node("Dropout", ["x", "r", "t"], ["y", "mask"])
    model = model_of(node, FLOAT, SIZE, [*X, ("t", BOOL, [])], [("r", np.float32(0.25))])
    model.graph.output.append(helper.make_tensor_value_info("mask", BOOL, SIZE))
    x = np.ones(SIZE, np.float32)
    y, mask = tiny_build(model).run(None, {"x": x, "t": np.array(flag)})
    assert mask.mean() == pytest.approx(0.75 if flag else 1, abs=0.02)
    assert np.allclose(y, mask / np.float32(0.75 if flag else 1))


@pytest.mark.parametrize("training", [None, False])
@pytest.mark.parametrize("as_node", [True, False])
def test_dropout_at_inference_draws_nothing(training, as_node, tiny_build):
    names = ["x", "r"] + ["t"] * (training is not None)
    constants = [("r", np.float32(0.5))] + [("t", np.array(training))] * (training is not None)
    before = [helper.make_node("Constant", [], [n], value=numpy_helper.from_array(a)) for n, a in constants if as_node]
    node = helper.make_node("Dropout", names, ["y"])
    session = tiny_build(model_of(node, FLOAT, SIZE, X, () if as_node else constants, before))
    x = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
    assert session.get_overridable_initializers() == []
    assert (session.run(None, {"x": x})[0] == x).all()


def test_a_function_of_the_model_may_draw(tiny_build):
    body = helper.make_function(
        "own", "Noisy", ["x"], ["y"], [drawing("RandomNormalLike", "x")], [helper.make_opsetid("", 18)]
    )
    model = model_of(helper.make_node("Noisy", ["x"], ["y"], domain="own"), FLOAT, SIZE, X)
    model.functions.append(body)
    model.opset_import.append(helper.make_opsetid("own", 1))
    session = tiny_build(model)
    assert session.run(None, feed_of(session))[0].std() == pytest.approx(1, abs=0.02)
