"""LSTMs by weights of 8 bits whose steps are one kernel, and those that are not."""

import math

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

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


def stacked(between, count=3):
    """Return a model of several DynamicQuantizeLSTMs, with the nodes of ``between`` from one's states to the next's X.

    ONNX's inference knows no shape behind the first, so the others' are known only once it is rewritten.
    """
    layers = [quantised_recurrent(40, batch=2, steps=6, inputs=10 if not place else 40) for place in range(count)]
    (model, _, feed), *_ = layers
    names = ("w", "r", "b", "ws", "wz", "rs", "rz")
    data, nodes, tensors = "x", [], list(CONSTANTS)
    for place, (layer, _, _) in enumerate(layers):
        (cell,) = layer.graph.node
        renamed = [f"{name}{place}" if name in names else name for name in cell.input]
        last = place == count - 1
        states = model.graph.output[0].name if last else f"states{place}"
        nodes.append(helper.make_node(cell.op_type, [data, *renamed[1:]], [states], f"cell{place}", domain=cell.domain))
        nodes[-1].attribute.extend(cell.attribute)
        for tensor in layer.graph.initializer:
            tensor.name = f"{tensor.name}{place}"
            tensors.append(tensor)
        if not last:
            data = f"x{place}"
            nodes += between(states, data)
    graph = helper.make_graph(nodes, "stacked", model.graph.input, model.graph.output[:1], tensors)
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version), feed


CONSTANTS = [
    numpy_helper.from_array(np.array(array, np.int64), name)
    for name, array in {"one": [1], "kept": [0, 2], "flat": [-1]}.items()
]


def squeezed(states, to):
    """Layers of one direction, joined as PyTorch's exporter does."""
    return [helper.make_node("Squeeze", [states, "one"], [to])]


def reshaped(states, to):
    """Directions, joined as exporters do: their axis goes last, into a shape that is computed."""
    return [
        helper.make_node("Transpose", [states], [f"{to}/turned"], perm=[0, 2, 1, 3]),
        helper.make_node("Shape", [states], [f"{to}/sizes"]),
        helper.make_node("Gather", [f"{to}/sizes", "kept"], [f"{to}/first"]),
        helper.make_node("Concat", [f"{to}/first", "flat"], [f"{to}/shape"], axis=0),
        helper.make_node("Reshape", [f"{to}/turned", f"{to}/shape"], [to]),
    ]


@pytest.mark.parametrize("between", [squeezed, reshaped])
def test_every_layer_of_a_stack_multiplies_bytes(tmp_path, between):
    model, feed = stacked(between)
    simple = simplify(load_model(written(model, tmp_path)))
    assert [node.op_type for node in simple.graph.node].count("DynamicQuantizeLSTM") == 3
    ours, theirs = run_ours(model, tmp_path, feed), by_onnxruntime(model, feed)
    assert distance(ours, theirs) < 1e-3


def test_a_target_without_products_of_uint8_gets_the_numbers_that_bytes_stand_for(tmp_path, monkeypatch):
    model, plain, feed = quantised_recurrent(40, dtype=np.uint8, zeros="any", direction="bidirectional")
    multiply_bytes_as("int8", monkeypatch)
    ours, theirs = run_ours(model, tmp_path, feed), by_onnxruntime(model, feed)
    assert distance(ours, theirs) < 1.5 * distance(by_onnxruntime(plain, feed), theirs)
