"""New names: tensors of a model may be called like anything that a pass of the importer would invent."""

import numpy as np
import pytest
from onnx import helper

from autotune.importer.load import load_model
from autotune.importer.onnx_model.graph_walk import Names, rename, walk_nodes
from autotune.importer.program import simplify
from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written

RNG = np.random.default_rng(0)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def busy():
    """A model that many passes work on."""
    branch = helper.make_graph([helper.make_node("Mul", ["s", "two"], ["t"])], "then", [], [value("t", None)])
    other = helper.make_graph([helper.make_node("Add", ["s", "two"], ["u"])], "else", [], [value("u", None)])
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"]),
        helper.make_node("Mul", ["n", "n"], ["q"]),
        helper.make_node("BatchNormalization", ["q", "g", "b", "m", "v"], ["r"]),
        helper.make_node("Clip", ["r", "low", ""], ["k"]),
        helper.make_node("Split", ["k"], ["s", "e"], axis=1, num_outputs=2),
        helper.make_node("ReduceSum", ["e"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "two"], ["more"]),
        helper.make_node("If", ["more"], ["f"], then_branch=branch, else_branch=other),
        helper.make_node("Pad", ["f", "pads"], ["p"], mode="wrap"),
        helper.make_node("Resize", ["p", "", "scales"], ["y"], mode="linear"),
    ]
    weights = {
        "w": array(8, 3, 3, 3),
        "g": array(8),
        "b": array(8),
        "m": array(8),
        "v": np.abs(array(8)) + 1,
        "low": np.array([-0.5], np.float32),
        "two": np.array(2, np.float32),
        "pads": np.array([0, 0, 1, -1, 0, 0, 2, 1]),
        "scales": np.array([1, 1, 2, 1.5], np.float32),
    }
    return model_of(nodes, [value("x", (1, 3, 6, 6))], ["y", "s", "x"], weights, opset=18)


def taken(model, folder):
    """Names that the importer's passes give to what is new in ``model``."""
    own = names_of(model.graph)
    return sorted(names_of(simplify(load_model(written(model, folder))).graph) - own)


def names_of(graph):
    own = {entry.name for field in (graph.input, graph.output, graph.initializer) for entry in field}
    return own | {name for node in walk_nodes(graph.node) for name in (*node.input, *node.output) if name}


@pytest.mark.parametrize("seed", range(3))
def test_tensors_that_are_called_what_passes_invent(tmp_path, seed):
    model = busy()
    invented = taken(model, tmp_path)
    inner = [name for node in model.graph.node for name in node.output if name not in ("y", "s")] + [
        "w",
        "low",
        "two",
        "g",
    ]
    rng = np.random.default_rng(seed)
    stems = rng.permutation(inner)
    new = dict(zip((str(stem) for stem in stems), rng.permutation(invented), strict=False))
    for tensor in model.graph.initializer:
        tensor.name = new.get(tensor.name, tensor.name)
    for node in model.graph.node:
        rename(node, new)
    feed = {"x": array(1, 3, 6, 6)}
    assert close(*run(model, tmp_path, feed))


LABELS = ("scalar", "start", "stop", "axis", "copy", "scale", "shift", "scaled", "is", "Pad/1", "If/1", "Resize/2")


def test_values_that_are_called_like_what_is_derived_from_others(tmp_path):
    model = busy()
    stems = [*(name for node in model.graph.node for name in node.output), "low", "two", "x"]
    for name in [f"{stem}/{label}" for stem in stems for label in LABELS]:
        model.graph.node.append(helper.make_node("Mul", ["s", "two"], [name], f"made {name}"))
    last = [node.output[0] for node in model.graph.node if node.name.startswith("made ")]
    model.graph.node.append(helper.make_node("Sum", last, ["sum of all"]))
    model.graph.output.append(value("sum of all", None))
    assert close(*run(model, tmp_path, {"x": array(1, 3, 6, 6)}))


def test_a_generator_knows_bodies_and_gives_no_name_twice():
    names = Names(busy().graph)
    assert names.new("fresh") == "fresh"
    assert names.new("fresh") == "fresh/1"
    assert names.new("t") == "t/1"
    assert names.new("fresh") == "fresh/2"
