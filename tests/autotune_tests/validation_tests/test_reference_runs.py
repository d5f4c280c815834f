"""The reference's answers, and what it does where a model cannot be widened."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from autotune.host.machine import read_host
from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.onnx_model.light_model import light
from autotune.validation import reference_runs
from autotune.validation.arithmetic import onnxruntime_session, reference_engines
from autotune.validation.reference_runs import Reference, reference_outputs
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.tiny import tiny_model
from tests.models import catalog

FEED = {"data": np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32)}


def inferred(model):
    return onnx.shape_inference.infer_shapes(model)


def test_the_model_in_64_bits_lies_near_both_levels():
    allowance = Reference(inferred(tiny_model(two_outputs=True))).allowance(FEED)
    assert (allowance.bound, allowance.reason, len(allowance.samples)) == ("fp64", "", 2)
    for number, exact in enumerate(allowance.exact):
        assert exact.dtype == np.float64
        for sample in allowance.samples:
            assert 0 < np.abs(sample[number] - exact).max() < 1e-5


@pytest.mark.parametrize(
    ("limit", "reason"),
    [("WIDENED_BYTES", "weights would take"), ("WIDENED_MULTIPLICATIONS", "multiplications, above")],
)
def test_a_large_model_has_the_spread_only(monkeypatch, limit, reason):
    monkeypatch.setattr(reference_runs, limit, 100)
    allowance = Reference(inferred(tiny_model())).allowance(FEED)
    assert (allowance.bound, len(allowance.samples)) == ("spread", 1)
    assert reason in allowance.reason


def test_a_model_that_quantises_is_shaken():
    path = catalog.cached("tiny_qdq")
    model = inferred(onnx.load(path))
    sizes = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    feed = {model.graph.input[0].name: np.random.default_rng(0).standard_normal(sizes).astype(np.float32)}
    assert len(Reference(model).allowance(feed).samples) == 2 + reference_runs.NOISES


def test_what_onnx_runtime_refuses_in_64_bits_has_the_spread_only(monkeypatch):
    def broken(model, rounded=False):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        copy.graph.node[0].op_type = "Unknown"
        return copy, False

    monkeypatch.setattr(reference_runs, "widen", broken)
    assert "refuses it in 64 bits" in Reference(inferred(tiny_model())).allowance(FEED).reason


def test_answers_are_kept_for_the_same_inputs_only(monkeypatch):
    runs = []
    real = reference_engines.answer_of
    monkeypatch.setattr(reference_runs, "answer_of", lambda *arguments: runs.append(1) or real(*arguments))
    reference = Reference(inferred(tiny_model()))
    first = reference.outputs(FEED)
    assert reference.outputs({name: array.copy() for name, array in FEED.items()}) is first
    kept = reference.allowance(FEED)
    assert reference.allowance(FEED) is kept
    assert len(runs) == 1
    assert reference.outputs({"data": FEED["data"] + 1}) is not first
    assert reference.allowance({"data": FEED["data"] + 1}) is not kept
    assert len(runs) == 2


def test_without_onnx_runtime_there_is_no_allowance(monkeypatch):
    monkeypatch.setattr(reference_engines, "_has_runtime", lambda: False)
    model = inferred(tiny_model())
    assert Reference(model).allowance(FEED) is None
    name, (ours,) = reference_outputs(model, FEED)
    assert name.startswith("onnx.reference")
    weights = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
    assert ours.shape == (1, weights["m"].shape[1])


@pytest.mark.parametrize("flags", [{"avx512_vnni"}, {"avx2"}])
def test_where_exact_bytes_fail_to_open_something_as_exact_is_run(monkeypatch, flags):
    opened = []

    def failing(model, optimised, exact, one_thread):
        opened.append((optimised, exact, one_thread))
        if exact:
            raise RuntimeError("Attempt to replace the existing tensor")
        return opened_by(model, optimised, exact, one_thread)

    opened_by = onnxruntime_session._opened
    monkeypatch.setattr(onnxruntime_session, "_opened", failing)
    monkeypatch.setattr(onnxruntime_session, "read_host", lambda: replace(read_host(), flags=frozenset(flags)))
    assert reference_outputs(inferred(tiny_model()), FEED)[1]
    assert opened == [(True, True, False), (flags == {"avx512_vnni"}, False, False)]


SIGNED_ROWS = """<ir_version: 7, opset_import: ["": 13]>
rows (float[3, 10] x) => (float[3, 5] y) <float s = {0.1}, uint8 z = {128}> {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    r = Relu(d)
    e = DequantizeLinear<axis = 0>(w, sw)
    y = Gemm(r, e, b)
}"""
"""ONNX Runtime opens it with exact bytes and fails at its first run: it gives the weights one zero point."""


def test_where_exact_bytes_fail_to_run_something_as_exact_is_run():
    model = parser.parse_model(SIGNED_ROWS)
    rng = np.random.default_rng(0)
    arrays = {"w": rng.integers(-127, 128, (10, 5)).astype(np.int8)}
    arrays |= {"sw": np.full(10, 0.01, np.float32), "b": np.ones(5, np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    feed = {"x": rng.standard_normal((3, 10)).astype(np.float32)}
    with pytest.raises(ThirdPartyError), third_party():
        onnxruntime_session._opened(light(model), True, True, False).run(None, feed)
    reference = Reference(model)
    assert np.allclose(reference.outputs(feed)[1], reference.plain(feed), atol=1e-6)


def test_a_feed_that_is_refused_leaves_the_way_as_it_was():
    session = onnxruntime_session.Session(tiny_model(), optimised=True)
    before = session._number
    with pytest.raises(ThirdPartyError):
        session.run({name: array[:, :1] for name, array in FEED.items()})
    assert session._number == before
    assert session.run(FEED)


def test_a_model_that_onnx_runtime_refuses_is_told_in_a_line():
    model = tiny_model()
    model.graph.node[0].op_type = "Unknown"
    with pytest.raises(ModelError, match=r"ONNX Runtime does not run the model, so .*Unknown"):
        reference_outputs(model, FEED)


def test_onnx_s_evaluator_takes_the_place_of_onnx_runtime_where_that_refuses_a_model(monkeypatch):
    """ONNX Runtime has no recurrent layers whose batch comes first, and no additions into fp16."""
    text = """<ir_version: 8, opset_import: ["": 17]> steps (float[2,3,4] x) => (float[2,3,1,5] y)
    { y = RNN<layout = 1, hidden_size = 5>(x, w, r) }"""
    model, rng = parser.parse_model(text), np.random.default_rng(0)
    arrays = {"w": rng.standard_normal((1, 5, 4)), "r": rng.standard_normal((1, 5, 5))}
    model.graph.initializer.extend(numpy_helper.from_array(a.astype(np.float32), name) for name, a in arrays.items())
    feed = {"x": rng.standard_normal((2, 3, 4)).astype(np.float32)}
    reference = Reference(inferred(model))
    name, (output,) = reference.outputs(feed)
    assert name.startswith("onnx.reference")
    first = np.tanh(feed["x"][:, 0] @ arrays["w"][0].T)
    np.testing.assert_allclose(output[:, 0, 0], first, 1e-5, 1e-6)
    assert reference.allowance(feed) is None
    assert reference.edges(feed) == []
    monkeypatch.setattr(reference_engines, "EVALUATED_S", -1.0)
    with pytest.raises(ModelError, match="ONNX Runtime does not run the model"):
        reference_outputs(model, feed)


SIZED_LOOP = """
    <ir_version: 8, opset_import: ["": 17]>
    sized (float[4, 6] x, int64[2] n) => (float[A, B] z)
    {
        y = Reshape (x, n)
        most = Constant <value = int64 {9223372036854775807}> ()
        go = Constant <value = bool {1}> ()
        z = Loop (most, go, y) <body = step (int64 i, bool c, float[A, B] u) => (bool d, float[A, B] t)
            { d = Identity (c) t = Neg (u) }>
    }
"""


def test_a_loop_that_never_ends_on_sizes_that_fit_is_ended(monkeypatch):
    monkeypatch.setattr(onnxruntime_session, "LOOPS_S", 0.3)
    monkeypatch.setattr(reference_engines, "_evaluator", lambda _: pytest.fail("the evaluator was asked"))
    monkeypatch.setattr(reference_runs, "answer_of", refusing)
    endless = inferred(parser.parse_model(SIZED_LOOP))
    feed = {"x": np.zeros((4, 6), np.float32), "n": np.array([1, 0])}
    with pytest.raises(ModelError, match="never end on random inputs"):
        Reference(endless).fitting(feed)


def refusing(model, feeds):
    raise ModelError("refused")


def test_random_values_stay_where_a_loop_never_ends_on_better_ones(monkeypatch):
    monkeypatch.setattr(onnxruntime_session, "LOOPS_S", 0.3)
    empty = reference_engines.Answer("onnxruntime", lambda feed: [], [[np.zeros((0, 1))]], 9.0)
    monkeypatch.setattr(reference_runs, "answer_of", lambda model, feeds: empty)
    endless = inferred(parser.parse_model(SIZED_LOOP))
    feed = {"x": np.zeros((4, 6), np.float32), "n": np.array([1, 0])}
    assert Reference(endless).fitting(feed) == feed


def test_a_loop_that_never_ends_is_ended(monkeypatch):
    """No second way, and no other reference, tries it again."""
    monkeypatch.setattr(onnxruntime_session, "LOOPS_S", 0.3)
    monkeypatch.setattr(reference_engines, "_evaluator", lambda _: pytest.fail("the evaluator was asked"))
    endless = parser.parse_model(
        """
        <ir_version: 8, opset_import: ["": 17]>
        endless (float[1] data) => (float[1] y)
        {
            most = Constant <value = int64 {9223372036854775807}> ()
            go = Constant <value = bool {1}> ()
            y = Loop (most, go, data) <body = step (int64 i, bool c, float[1] s) => (bool d, float[1] t)
                { d = Identity (c) t = Neg (s) }>
        }
        """
    )
    feed = {"data": np.zeros(1, np.float32)}
    with pytest.raises(ModelError, match="never end on random inputs"):
        reference_outputs(inferred(endless), feed)
    with pytest.raises(ModelError, match="never end on random inputs"):
        Reference(inferred(endless)).fitting(feed)
