"""Recurrent cells step by step."""

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import recurrent, value


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [("LSTM", {"clip": 0.3}), ("GRU", {"linear_before_reset": 1}), ("GRU", {}), ("RNN", {"activations": ["Relu"] * 2})],
)
def test_recurrence_step_by_step(tmp_path, kind, attributes):
    model, feed = recurrent(kind, "bidirectional", 10, states=True, **attributes)
    assert close(*run(model, tmp_path, feed))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("names", [("w",), ("r",), ("w", "r", "b")])
def test_weights_of_a_cell_may_be_inputs(kind, names, tmp_path):
    """The kernel of all steps needs them constant; step by step they may be anything."""
    attributes = {"linear_before_reset": 1} if kind == "GRU" else {}
    model, feed = recurrent(kind, "forward", 32, steps=3, **attributes)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for name in names:
        model.graph.input.append(value(name, tensors[name].dims))
        feed[name] = numpy_helper.to_array(tensors[name])
        model.graph.initializer.remove(tensors[name])
    assert close(*run(model, tmp_path, feed))


@pytest.mark.parametrize("more", [{"clip": 50.0}, {}], ids=["step by step", "one kernel"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_of_halves_only_what_the_operator_makes_is_rounded(kind, more, tmp_path):
    """As ONNX Runtime does, which computes it in fp32; rounded at every step, the states drift apart."""
    attributes = {"linear_before_reset": 1, **more} if kind == "GRU" else more
    model, feed = recurrent(kind, "bidirectional", 10, steps=24, **attributes)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.elem_type = TensorProto.FLOAT16
    ours, theirs = run(model, tmp_path, {name: array.astype(np.float16) for name, array in feed.items()})
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype == np.float16
        apart = np.abs(mine.astype(np.float64) - other)
        assert np.max(apart / np.maximum(np.abs(other), 2.0**-14)) < 1.01 * 2.0**-10  # one unit in the last place
        assert np.mean(apart > 0) < 0.02
    most = max(task.weight for task in imported(model, tmp_path).tasks)
    # Else each of the steps, forward and back, calls it; the first ones read their state in kernels of their own.
    assert (most < 2 * 23) == (not more)


@pytest.mark.parametrize("steps", [0, 2, 4])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_sequence_that_is_walked_both_ways_ends_where_it_is_told(kind, steps, tmp_path):
    """One kernel computes so many steps; ONNX Runtime gives zeros for none, whatever the states to begin with."""
    attributes = {"linear_before_reset": 1} if kind == "GRU" else {}
    model, feed = recurrent(kind, "bidirectional", 20, steps=4, batch=1, states=True, lengths=(steps,), **attributes)
    assert close(*run(model, tmp_path, feed))
    assert any("both" in task.name for task in imported(model, tmp_path).tasks)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_lengths_beyond_a_sequence_are_those_of_its_ends(kind, batch, tiny_build):
    """ONNX Runtime refuses such calls; kernels must not write a row for every step that a caller claims."""
    attributes = {"linear_before_reset": 1} if kind == "GRU" else {}
    model, feed = recurrent(
        kind, "bidirectional", 20, steps=4, batch=batch, states=True, lengths=(4,) * batch, **attributes
    )
    session = tiny_build(model)
    for told, meant in ((1 << 30, 4), (5, 4), (-1, 0), (-(1 << 30), 0)):
        ours, wanted = (
            session.run(None, {**feed, "lengths": np.full(batch, steps, np.int32)}) for steps in (told, meant)
        )
        for mine, other in zip(ours, wanted, strict=True):
            np.testing.assert_array_equal(mine, other)
