"""Recurrent cells step by step."""

import pytest
from onnx import numpy_helper

from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import recurrent, value


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [("LSTM", {"clip": 0.3}), ("GRU", {"linear_before_reset": 1}), ("GRU", {}), ("RNN", {"activations": ["Relu"] * 2})],
)
def test_recurrence_step_by_step(tmp_path, kind, attributes):
    model, feed = recurrent(kind, "bidirectional", 10, states=True, **attributes)
    assert close(*run(model, tmp_path, feed))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("given", [("w",), ("r",), ("w", "r", "b")])
def test_weights_of_a_cell_may_be_inputs(kind, given, tmp_path):
    """The kernel of all steps needs them constant; step by step they may be anything."""
    attributes = {"linear_before_reset": 1} if kind == "GRU" else {}
    model, feed = recurrent(kind, "forward", 32, steps=3, **attributes)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for name in given:
        model.graph.input.append(value(name, tensors[name].dims))
        feed[name] = numpy_helper.to_array(tensors[name])
        model.graph.initializer.remove(tensors[name])
    assert close(*run(model, tmp_path, feed))
