"""LSTMs and GRUs whose steps are one kernel; those of bytes too."""

import math

import numpy as np
import onnxruntime
import pytest

from autotune.importer.load import load_model
from autotune.importer.onnx_model.shapes import SKELETON_ELEMENTS
from autotune.importer.program import simplify
from tests.autotune_tests.importer_tests.built import close, multiply_bytes_as, run, run_ours
from tests.autotune_tests.importer_tests.onnx_cases import quantised_recurrent, recurrent, written


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("states", [False, True])
def test_lstm_in_one_kernel(tmp_path, direction, states):
    model, feed = recurrent("LSTM", direction, 64, states=states)
    assert close(*run(model, tmp_path, feed))


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("states", [False, True])
def test_gru_in_one_kernel(tmp_path, direction, states):
    model, feed = recurrent("GRU", direction, 64, states=states, linear_before_reset=1)
    assert close(*run(model, tmp_path, feed))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize(("hidden", "batch", "states"), [(5, 1, False), (48, 20, True), (32, 64, False), (70, 3, True)])
def test_any_number_of_units_and_a_batch_of_narrow_layers_is_one_kernel(tmp_path, kind, hidden, batch, states):
    more = {"linear_before_reset": 1} if kind == "GRU" else {}
    model, feed = recurrent(kind, "bidirectional", hidden, batch, states=states, **more)
    simple = simplify(load_model(written(model, tmp_path)))
    assert [node.op_type for node in simple.graph.node] == [kind]
    assert close(*run(model, tmp_path, feed))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("lengths", [(3, 5, 0, 1), (5, 5, 5, 5)])
def test_sequences_of_several_lengths_are_one_kernel_for_each_direction(tmp_path, kind, direction, lengths):
    more = {"linear_before_reset": 1} if kind == "GRU" else {}
    model, feed = recurrent(kind, direction, 40, 4, states=True, lengths=lengths, **more)
    simple = simplify(load_model(written(model, tmp_path)))
    cells = [node for node in simple.graph.node if node.op_type in ("LSTM", "GRU")]
    assert len(cells) == (2 if direction == "bidirectional" else 1)
    assert close(*run(model, tmp_path, feed))


@pytest.mark.parametrize(("hidden", "batch"), [(256, 65), (288, 9)])
def test_a_large_batch_of_wide_layers_is_laid_out(tmp_path, hidden, batch):
    model, _ = recurrent("LSTM", "forward", hidden, batch, steps=2)
    assert "LSTM" not in {node.op_type for node in simplify(load_model(written(model, tmp_path))).graph.node}


def test_weights_of_a_cell_that_are_large_still_make_one_kernel(tmp_path):
    """They are inputs of the skeleton that is rewritten, as true inputs are."""
    model, _ = recurrent("LSTM", "forward", 32, steps=3)
    assert max(math.prod(tensor.dims) for tensor in model.graph.initializer) > SKELETON_ELEMENTS
    simple = simplify(load_model(written(model, tmp_path)))
    assert [node.op_type for node in simple.graph.node] == ["LSTM"]


def by_onnxruntime(model, feed):
    """Outputs by one thread: it splits a batch among threads, and each quantises states by the range of its own."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)


def distance(ours, theirs):
    """The root mean square of all differences."""
    assert [each.shape for each in ours] == [each.shape for each in theirs]
    return math.sqrt(np.mean(np.concatenate([((a - b) ** 2).ravel() for a, b in zip(ours, theirs, strict=True)])))


BYTES = {
    "one": {"hidden": 64, "batch": 1, "steps": 20},
    "backwards": {"hidden": 40, "batch": 3, "direction": "reverse", "states": True},
    "both ways": {"hidden": 70, "direction": "bidirectional", "states": True, "zeros": "gate"},
    "uint8": {"hidden": 64, "dtype": np.uint8, "batch": 4},
    "uint8 by gate": {"hidden": 5, "dtype": np.uint8, "zeros": "gate", "direction": "bidirectional"},
    "any uint8": {"hidden": 33, "dtype": np.uint8, "zeros": "any", "direction": "bidirectional", "batch": 6},
    "any int8": {"hidden": 48, "zeros": "any", "batch": 1},
    "wide batch": {"hidden": 288, "batch": 10, "steps": 3},
    "whole lengths": {"hidden": 32, "batch": 3, "kept_lengths": (6, 6, 6)},
    "lengths": {"hidden": 40, "batch": 4, "lengths": (3, 6, 0, 1), "states": True},
    "lengths backwards": {"hidden": 32, "batch": 3, "lengths": (3, 5, 2), "direction": "reverse", "zeros": "any"},
    "lengths both ways": {"hidden": 32, "batch": 4, "lengths": (3, 5, 2, 1), "direction": "bidirectional"},
}


@pytest.mark.parametrize("case", BYTES)
def test_a_quantised_lstm_rounds_as_onnxruntime_does(tmp_path, case):
    """So nearly that no more than a rounding in some thousands falls to the other side."""
    model, plain, feed = quantised_recurrent(**BYTES[case])
    simple = simplify(load_model(written(model, tmp_path)))
    kinds = [node.op_type for node in simple.graph.node]
    split = "lengths" in BYTES[case] and BYTES[case].get("direction") == "bidirectional"
    assert kinds.count("DynamicQuantizeLSTM") == (2 if split else 1)
    theirs = by_onnxruntime(model, feed)
    assert distance(run_ours(model, tmp_path, feed), theirs) < 0.02 * distance(by_onnxruntime(plain, feed), theirs)


@pytest.mark.parametrize(
    "more",
    [
        {"peepholes": True, "zeros": "gate"},
        {"clip": 0.5},
        {"input_forget": 1},
        {"activations": ["Relu", "Tanh", "Tanh"]},
        {"kept_lengths": (3, 5), "direction": "bidirectional", "dtype": np.uint8},
        {"batch": 65},
    ],
    ids=lambda more: next(iter(more)),
)
def test_other_quantised_lstms_are_those_of_the_numbers_that_bytes_stand_for(tmp_path, more):
    model, plain, feed = quantised_recurrent(8, steps=5, inputs=4, **more)
    ours, theirs = run_ours(model, tmp_path, feed), by_onnxruntime(plain, feed)
    np.testing.assert_allclose(distance(ours, theirs), 0, atol=1e-5)


def test_a_target_without_products_of_uint8_gets_the_numbers_that_bytes_stand_for(tmp_path, monkeypatch):
    model, plain, feed = quantised_recurrent(40, dtype=np.uint8, zeros="any", direction="bidirectional")
    multiply_bytes_as("int8", monkeypatch)
    ours, theirs = run_ours(model, tmp_path, feed), by_onnxruntime(model, feed)
    assert distance(ours, theirs) < 1.5 * distance(by_onnxruntime(plain, feed), theirs)
