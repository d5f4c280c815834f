"""Verification with NaN and infinities: an artifact that makes numbers of them does not pass."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.validation import reference_runs
from autotune.validation.arithmetic.edge_inputs import MOST_BYTES, edge_feeds, lost
from autotune.validation.reference_runs import Reference
from autotune.validation.verify import compare_outputs
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

RNG = np.random.default_rng(0)
FEED = {"x": RNG.standard_normal((4, 16)).astype(np.float32)}


class Fake:
    """A session that computes ``function`` of x."""

    def __init__(self, function):
        self._function = function

    def run(self, names, feed):
        return [self._function(feed["x"])]

    def get_inputs(self):
        return [type("Arg", (), {"shape": [4, 16]})]

    def get_outputs(self):
        return [type("Arg", (), {"shape": [4, 16]})]

    def get_modelmeta(self):
        return type("Meta", (), {"custom_metadata_map": {}})


def relu_model():
    return onnx.shape_inference.infer_shapes(
        model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", (4, 16))], ["y"])
    )


@pytest.fixture(scope="module")
def reference():
    return Reference(relu_model())


def kept(x):
    return np.where(np.isnan(x), x, np.maximum(x, 0))


def test_a_relu_that_keeps_nan_passes(reference):
    assert compare_outputs(Fake(kept), reference, FEED).passed


@pytest.mark.parametrize(
    ("function", "words"),
    [(lambda x: np.fmax(x, 0), "inputs with NaN"), (lambda x: np.where(np.isinf(x), 0, kept(x)), "with infinity")],
)
def test_a_relu_that_drops_nan_or_infinity_fails(reference, function, words):
    verdict = compare_outputs(Fake(lambda x: function(x).astype(np.float32)), reference, FEED)
    assert not verdict.passed
    assert verdict.mismatch.startswith("64 of 64 elements of output 0 are numbers where the reference gives NaN")
    assert words in verdict.mismatch
    assert verdict.difference == verdict.mismatch


def test_nan_may_spread(reference):
    def spread(x):
        return np.where(np.isfinite(x).all(), np.maximum(x, 0), np.nan).astype(np.float32)

    assert compare_outputs(Fake(spread), reference, FEED).passed


def test_where_onnx_runtime_differs_from_itself_anything_is_right(reference, monkeypatch):
    monkeypatch.setattr(Reference, "plain", lambda self, feed: [np.zeros((4, 16), np.float32)])
    assert compare_outputs(Fake(lambda x: np.fmax(x, np.float32(0))), reference, FEED).passed


def test_inputs_that_onnx_runtime_refuses_are_left_out():
    """A quotient of integers that NaN makes 0, say."""
    nodes = [
        helper.make_node("IsNaN", ["x"], ["n"]),
        helper.make_node("Not", ["n"], ["ok"]),
        helper.make_node("Cast", ["ok"], ["d"], to=TensorProto.INT32),
        helper.make_node("Div", ["d", "d"], ["y"]),
    ]
    model = model_of(nodes, [value("x", (4, 16))], [])
    model.graph.output.append(value("y", (4, 16), TensorProto.INT32))
    assert [edge.words for edge in Reference(model).edges(FEED)] == ["infinity"]


def test_a_slow_model_is_run_on_ordinary_inputs_only(monkeypatch):
    monkeypatch.setattr(reference_runs, "EDGES_S", 0.0)
    assert Reference(relu_model()).edges(FEED) == []


def test_every_input_of_floats_is_changed_and_no_other():
    feed = {
        "a": np.ones((2, 3), np.float32),
        "b": np.ones((), np.float16),
        "i": np.ones(3, np.int64),
        "none": np.ones((0, 3), np.float32),
    }
    feeds = dict(edge_feeds(feed))
    assert [*feeds] == ["NaN", "infinity"]
    assert all(np.isnan(feeds["NaN"][name]).all() for name in ("a", "b"))
    assert np.isposinf(feeds["infinity"]["a"]).all()
    assert all(feeds["NaN"][name] is feed[name] for name in ("i", "none"))
    assert np.isfinite(feed["a"]).all()


def test_a_large_cache_is_not_copied():
    cache = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (MOST_BYTES,), (0,))
    assert list(edge_feeds({"past": cache})) == []


def test_sequences_and_integers_are_not_compared():
    assert not lost([np.ones(2)], [np.full(2, np.nan)]).any()
    assert not lost(np.ones(2, np.int64), np.zeros(2, np.int64)).any()
