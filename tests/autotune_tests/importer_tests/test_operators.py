"""Operators that the importer rewrites or converts itself, in forms that ONNX's node suite leaves out."""

from __future__ import annotations

import math

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, defs, helper, numpy_helper

from autotune.backends.cpu.cpu_build import build_artifact
from autotune.importer.conversion.folding import fold
from autotune.importer.conversion.operator_catalog import import_graph
from autotune.importer.conversion.registry import REWRITES
from autotune.importer.onnx_model.load import load_model
from autotune.importer.onnx_model.shapes import SKELETON_ELEMENTS
from autotune.importer.onnx_model.simplify import simplify
from autotune.importer.program import import_program
from autotune.runtime.session import InferenceSession
from schedules.errors import ModelError
from tests.autotune_tests import tiny
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written
from tests.conformance.onnx_nodes.trial import InlineWorkshop, untuned_plan


def run(model, folder, feed):
    """Ours and ONNX Runtime's outputs."""
    path = written(model, folder)
    program = import_program(simplify(load_model(path)), tiny.target())
    workshop = InlineWorkshop(tiny.target(), folder)
    build_artifact(folder / "out", program, untuned_plan(program, tiny.target()), path, workshop)
    theirs = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)
    return InferenceSession(folder / "out").run(None, feed), theirs


def close(ours, theirs):
    return len(ours) == len(theirs) and all(
        a.shape == b.shape and a.dtype == b.dtype and np.allclose(a, b, 1e-4, 1e-5)
        for a, b in zip(ours, theirs, strict=True)
    )


def recurrent(kind, direction, hidden, batch=2, steps=5, inputs=6, states=False, **attributes):
    """A model of one recurrent node with all its outputs, and a feed."""
    rng = np.random.default_rng(0)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    count = 2 if direction == "bidirectional" else 1
    weights = {
        "w": rng.standard_normal((count, gates * hidden, inputs)) / np.sqrt(inputs),
        "r": rng.standard_normal((count, gates * hidden, hidden)) / np.sqrt(hidden),
        "b": rng.standard_normal((count, 2 * gates * hidden)) / 4,
    }
    names = ["x", "w", "r", "b", ""]
    if states:
        names += ["h0", "c0"] if kind == "LSTM" else ["h0"]
        for name in names[5:]:
            weights[name] = rng.standard_normal((count, batch, hidden)) / 2
    outputs = ["y", "yh", "yc"] if kind == "LSTM" else ["y", "yh"]
    node = helper.make_node(kind, names, outputs, "cell", hidden_size=hidden, direction=direction, **attributes)
    floats = {name: array.astype(np.float32) for name, array in weights.items()}
    model = model_of([node], [value("x", (steps, batch, inputs))], outputs, floats)
    return model, {"x": rng.standard_normal((steps, batch, inputs)).astype(np.float32)}


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


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [("LSTM", {"clip": 0.3}), ("GRU", {"linear_before_reset": 1}), ("GRU", {}), ("RNN", {"activations": ["Relu"] * 2})],
)
def test_recurrence_step_by_step(tmp_path, kind, attributes):
    model, feed = recurrent(kind, "bidirectional", 10, states=True, **attributes)
    assert close(*run(model, tmp_path, feed))


def _branch(name, kind):
    node = helper.make_node(kind, ["x"], [name])
    return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, (3, 4))])


@pytest.mark.parametrize("taken", [True, False])
def test_a_computed_condition_chooses(tmp_path, taken):
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=_branch("t", "Exp"), else_branch=_branch("e", "Neg"))]
    model = model_of(nodes, [value("x", (3, 4)), value("c", (), TensorProto.BOOL)], ["y"])
    feed = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32), "c": np.array(taken)}
    assert close(*run(model, tmp_path, feed))


def test_a_loop_stops_when_its_condition_says_so(tmp_path):
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "s"], ["d"]),
            helper.make_node("ReduceMax", ["d"], ["m"], keepdims=0),
            helper.make_node("Less", ["m", "limit"], ["go"]),
        ],
        "body",
        [value("i", (), TensorProto.INT64), value("go_in", (), TensorProto.BOOL), value("s", (4,))],
        [value("go", (), TensorProto.BOOL), value("d", (4,))],
    )
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], "loop", body=body)]
    constants = {"trips": np.array(8, np.int64), "limit": np.array(20, np.float32)}
    model = model_of(nodes, [value("x", (4,))], ["y"], constants)
    assert close(*run(model, tmp_path, {"x": np.array([1, 2, 3, 4], np.float32)}))


def test_shapes_fold_to_constants():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Mul", ["n", "two"], ["m"]),
    ]
    model = model_of(nodes, [value("x", (3, 5))], ["m"], {"zero": np.array([0]), "two": np.array([2])})
    assert fold(model)
    assert not model.graph.node
    assert {tensor.name for tensor in model.graph.initializer} >= {"m"}


@pytest.mark.parametrize(
    ("kind", "inputs", "why"),
    [("NonZero", ["x"], "depends on data"), ("Bernoulli", ["x"], "random"), ("Reshape", ["x", "s"], "Reshape")],
)
def test_refusals_name_the_operator(tmp_path, kind, inputs, why):
    given = [value("x", (2, 3)), value("s", (2,), TensorProto.INT64)][: len(inputs)]
    made = helper.make_node(kind, inputs, ["made"], "culprit")
    path = written(model_of([made, helper.make_node("Cast", ["made"], ["y"], to=1)], given, ["y"]), tmp_path)
    with pytest.raises(ModelError, match=kind) as error:
        import_program(simplify(load_model(path)), tiny.target())
    assert why in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "why"),
    [
        ("DeformConv", {"x": (1, 1, 4, 4, 4), "w": (1, 1, 2, 2, 2), "o": (1, 8, 3, 3, 3)}, {}, "only images of two"),
        ("ReduceMax", {"x": (2, 3), "axes": (1,)}, {}, "its axes are computed from the inputs; they must be constant"),
        (
            "LSTM",
            {"x": (3, 2, 6), "w": (1, 128, 6), "r": (1, 128, 32)},
            {"hidden_size": 32},
            "its weights are computed from the inputs; they must be constant",
        ),
    ],
)
def test_forms_that_are_missing_are_told_as_such(kind, shapes, attributes, why):
    given = [value(name, shape, TensorProto.INT64 if name == "axes" else 1) for name, shape in shapes.items()]
    node = helper.make_node(kind, [*shapes], ["y"], "culprit", **attributes)
    with pytest.raises(ModelError) as error:
        import_graph(model_of([node], given, ["y"], opset=19))
    assert str(error.value).startswith(f"operator {kind} (node 'culprit') is not supported: ")
    assert why in str(error.value)


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


def test_weights_of_a_cell_that_are_large_still_make_one_kernel(tmp_path):
    """They are inputs of the skeleton that is rewritten, as true inputs are."""
    model, _ = recurrent("LSTM", "forward", 32, steps=3)
    assert max(math.prod(tensor.dims) for tensor in model.graph.initializer) > SKELETON_ELEMENTS
    simple = simplify(load_model(written(model, tmp_path)))
    assert [node.op_type for node in simple.graph.node] == ["LSTM"]


def test_a_result_that_is_no_tensor_is_told_with_the_way_out(tmp_path):
    made = helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None)
    model = model_of([helper.make_node("SplitToSequence", ["x"], ["parts"], "cut")], [value("x", (4, 2))], [])
    model.graph.output.append(made)
    with pytest.raises(ModelError, match=r"'parts' of operator SplitToSequence is not a tensor; .*; drop that output"):
        simplify(load_model(written(model, tmp_path)))


def test_every_rewrite_is_of_a_standard_operator():
    assert [kind for kind in REWRITES if not defs.has(kind)] == []


def test_a_window_that_fits_nowhere_behind_a_pool_that_rounds_up(tmp_path):
    """ONNX's inference takes a last window that begins outside of the data for one that counts."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], "first", kernel_shape=[2], strides=[3], pads=[0, 1], ceil_mode=1),
        helper.make_node("MaxPool", ["p"], ["y"], "second", kernel_shape=[3], pads=[0, 1], strides=[2]),
    ]
    model = model_of(nodes, [value("x", (1, 4, 3))], ["y"])
    with pytest.raises(ModelError, match=r"MaxPool.*second.*window is larger than its padded data; check --input"):
        import_program(simplify(load_model(written(model, tmp_path))), tiny.target())
