"""Inputs that are sizes or indices get values that make a call of the model."""

import logging

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from autotune.validation.arithmetic.fitting_values import MOST_FILLING, assumed_values, fitting_feed, is_filled
from autotune.validation.reference_runs import Reference
from schedules.vocabulary.errors import ModelError

GRAPHS = {
    "a shape": ("(float[4,6] x, int64[2] n) => (float[A,B] z) { y = Reshape(x, n) z = MatMul(y, y2) }", (6, 5)),
    "a part of a shape": (
        """(float[2,3,8] x, int64[1] n) => (float[A,B,C,D] z) <int64[2] a = {2,3}, int64[1] m = {-1}>
        { s = Concat<axis=0>(a, n, m) z = Reshape(x, s) }""",
        None,
    ),
    "fewer axes": ("(float[2,3,4] x, int64[2] n) => (float[A,B] z) { z = Reshape(x, n) }", None),
    "ends": ("(float[8,6] x, int64[1] n) => (float[A,B] z) <int64[1] a = {0}> { z = Slice(x, a, n, a) }", None),
    "a target": ("(float[3,6] x, int64[2] n) => (float[A,B] z) { z = Expand(x, n) }", None),
    "a limit": ("(int64 n) => (int64[L] z) <int64 a = {0}, int64 d = {1}> { z = Range(a, n, d) }", None),
    "a count": ("(float[3,7] x, int64[1] n) => (float[A,B] z, int64[A,B] i) { z, i = TopK(x, n) }", None),
    "an index": ("(float[1,6] x, int64[3] n) => (float[A,B] z) { z = Gather(x, n) }", None),
    "pads": ('(float[1,4] x, int64[4] n) => (float[A,B] z) { z = Pad<mode = "reflect">(x, n) }', None),
    "repeats": ("(float[3,4] x, int64[2] n) => (float[A,B] z) { z = Tile(x, n) }", None),
    "narrow repeats": ("(float[3,4] x, int32[2] n) => (float[A,B] z) { m = Cast<to = 7>(n) z = Tile(x, m) }", None),
    "scales": ("(float[1,2,4,4] x, float[4] n) => (float[A,B,C,D] z) { z = Resize(x, , n) }", None),
    "lengths": ("(float[6,4] x, int64[2] n) => (float[A,B] z, float[C,D] w) { z, w = Split(x, n) }", None),
    "axes": ("(float[3,1,4] x, int64[1] n) => (float[A,B] z) { z = Squeeze(x, n) }", None),
    "classes": ("(int64[4] x, int64 n) => (float[A,B] z) <float[2] v = {0,1}> { z = OneHot(x, n, v) }", None),
}


def model_of(text, product=None):
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
    if product is not None:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(product, np.float32), "y2"))
    return onnx.shape_inference.infer_shapes(model)


def drawn(model):
    """Ones, and sizes of which no model of ``GRAPHS`` makes a tensor with elements."""
    feed = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        number = -99 if value.name == "n" else 1
        feed[value.name] = np.full(shape, number, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return feed


@pytest.mark.parametrize("name", GRAPHS)
def test_values_are_found_that_the_reference_runs(name, caplog):
    model = model_of(*GRAPHS[name])
    feed, reference = drawn(model), Reference(model)
    with caplog.at_level(logging.WARNING):
        fitting = reference.fitting(feed)
    assert is_filled(reference.outputs(fitting)[1])
    assert not np.array_equal(fitting["n"], feed["n"])
    (said,) = (record.message for record in caplog.records)
    assert said == assumed_values(feed, fitting)
    assert "'n' = " in said
    assert reference.fitting(feed).keys() == feed.keys()
    assert len(caplog.records) == 1


def test_random_values_stay_where_they_make_a_call(caplog):
    model = model_of("(float[3,6] x, int64[2] n) => (float[A,B] z) { z = Gather(x, n) }")
    feed = {**drawn(model), "n": np.array([1, 0])}
    assert Reference(model).fitting(feed) == feed
    assert not caplog.records


def test_texts_become_numbers_where_only_these_make_a_call(caplog):
    model = model_of("(string[6] n) => (float[6] z) { m = Reshape(n, k) z = Cast<to = 1>(m) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "k"))
    feed = {"n": np.array(["a", "two words", "", "b", "a", "b"], object)}
    fitting = Reference(model).fitting(feed)
    assert fitting["n"].tolist() == ["1", "-2", "0", "30", "1", "-2"]
    assert len(caplog.records) == 1


def test_a_threshold_of_overlap_is_a_share():
    model = model_of(
        "(float[1,6,4] b, float[1,2,6] s, int64 n, float t) => (int64[A,3] z) { z = NonMaxSuppression(b, s, n, t) }"
    )
    rng = np.random.default_rng(0)
    feed = {"b": rng.random((1, 6, 4)), "s": rng.random((1, 2, 6)), "n": np.array(0), "t": np.array(-0.7)}
    feed = {name: array.astype(np.int64 if name == "n" else np.float32) for name, array in feed.items()}
    reference = Reference(model)
    fitting = reference.fitting(feed)
    assert 0 <= fitting["t"] <= 1
    assert is_filled(reference.outputs(fitting)[1])


def test_what_no_value_helps_is_refused_as_before():
    model = model_of("(float[3,6] x, int64[2] n) => (float[A,B] z) { y = Reshape(x, n) z = MatMul(y, y2) }", (5, 5))
    with pytest.raises(ModelError, match="does not run the model"):
        Reference(model).fitting(drawn(model))


def test_an_empty_result_is_taken_only_where_nothing_else_runs():
    model = model_of("(int64 n) => (int64[L] z) <int64 a = {0}, int64 d = {1}> { z = Range(a, n, d) }")
    feed = {"n": np.array(-1)}
    assert fitting_feed(model, feed, lambda feed: [np.arange(feed["n"])])["n"] == 4
    assert fitting_feed(model, feed, lambda feed: [np.arange(0)])["n"] == 4
    assert fitting_feed(model, feed, lambda _: None) is None


def test_an_empty_result_of_random_values_is_kept_where_no_other_has_more(caplog):
    model = model_of(
        "(float[3,6] x, int64[2] n) => (int64[2,K] z, int64[2] w) { d = Sub(x, x) z = NonZero(d) w = Neg(n) }"
    )
    feed = {**drawn(model), "n": np.array([1, 0])}
    assert Reference(model).fitting(feed) == feed
    assert not caplog.records
    tried = []
    assert fitting_feed(model, feed, lambda other: tried.append(other) or [np.arange(0)], runs=True) is None
    assert 0 < len(tried) <= MOST_FILLING
    assert not any(np.array_equal(other["n"], feed["n"]) for other in tried)


def test_axes_in_another_file_are_passed_over():
    model = model_of("(float[8,6] x, int64[1] n) => (float[A,B] z) { z = Slice(x, a, n, b) }")
    axes = onnx.numpy_helper.from_array(np.array([1]), "b")
    onnx.external_data_helper.set_external_data(axes, "nowhere.data")
    axes.ClearField("raw_data")
    model.graph.initializer.extend([onnx.numpy_helper.from_array(np.array([0]), "a"), axes])
    assert fitting_feed(model, drawn(model), lambda feed: [feed["x"][: feed["n"][0]]])["n"] == 8


def test_floats_that_become_indices_are_shares_of_one():
    """A box's first number may say which image it belongs to."""
    model = model_of(
        """(float[2,3] x, float[1,2] n) => (float[A,B] z) <int64 c = {0}>
        { k = Gather<axis = 1>(n, c) i = Cast<to = 7>(k) z = Gather(x, i) }"""
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())

    def run(feed):
        return None if not 0 <= feed["n"][0, 0] < 2 else session.run(None, feed)

    feed = {"x": np.ones((2, 3), np.float32), "n": np.array([[-7.25, 5.5]], np.float32)}
    fitting = fitting_feed(model, feed, run)
    np.testing.assert_array_equal(fitting["n"], [[0.75, 0.5]])
    assert fitting_feed(model, feed, run, runs=True) is None  # other floats make no better call


def test_of_many_numbers_the_ends_are_told():
    feed, fitting = {"x": np.zeros(20)}, {"x": np.linspace(0.25, 0.5, 20)}
    assert "with 'x' = 20 numbers from 0.25 to 0.5;" in assumed_values(feed, fitting)
