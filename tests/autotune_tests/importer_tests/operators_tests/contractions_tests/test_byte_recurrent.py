"""LSTMs by weights of 8 bits whose steps are one kernel, and those that are not."""

import math

import numpy as np
import onnxruntime
import pytest

from autotune.importer.load import load_model
from autotune.importer.program import simplify
from tests.autotune_tests.importer_tests.built import multiply_bytes_as, run_ours
from tests.autotune_tests.importer_tests.onnx_cases import quantised_recurrent, written


def by_onnxruntime(model, feed):
    """Outputs by one thread: it splits a batch among threads, and each quantises states by the range of its own."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)


def distance(ours, theirs):
    """The root mean square of all differences."""
    assert [output.shape for output in ours] == [output.shape for output in theirs]
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
