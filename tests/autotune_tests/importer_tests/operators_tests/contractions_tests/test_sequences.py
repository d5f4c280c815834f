"""LSTMs and GRUs whose steps are one kernel."""

import math

import pytest

from autotune.importer.load import load_model
from autotune.importer.onnx_model.shapes import SKELETON_ELEMENTS
from autotune.importer.program import simplify
from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import recurrent, written


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


@pytest.mark.parametrize(("kind", "vectors"), [("LSTM", 8), ("GRU", 6)])
def test_states_that_fill_up_a_chunk_are_not_read(tmp_path, kind, vectors):
    more = {"linear_before_reset": 1} if kind == "GRU" else {}
    model, _ = recurrent(kind, "forward", 70, 2, **more)
    (steps,) = (task for task in imported(model, tmp_path).tasks if task.template == "recurrent")
    assert steps.shapes[1] == (3, 70, vectors, 16)


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
