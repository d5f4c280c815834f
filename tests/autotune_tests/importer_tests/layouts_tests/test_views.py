"""Transposes that nothing needs are not emitted."""

import numpy as np
import pytest
from onnx import helper

from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.layouts_tests.test_products import assigned
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

HEADS = {"perm": [0, 2, 3, 1]}
MOVES = ("relax.permute_dims", "relax.strided_slice")


def test_transposes_that_cancel_out_vanish():
    nodes = [
        ("Transpose", ["x"], "t", {"perm": [1, 0]}),
        ("Transpose", ["t"], "u", {"perm": [1, 0]}),
        ("Relu", ["u"], "y", {}),
    ]
    assert assigned(nodes, {"x": (2, 3)}, (2, 3)) == {"relax.nn.relu": 1}


def test_axes_of_one_number_between_transposes_move_nothing(tmp_path):
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "three"], ["r"]),
        helper.make_node("Transpose", ["r"], ["u"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["u", "four"], ["k"]),
        helper.make_node("MatMul", ["q", "k"], ["y"]),
    ]
    sizes = {"three": np.array([2, 5, 4]), "four": np.array([1, 2, 4, 5])}
    model = model_of(nodes, [value("x", (1, 5, 2, 4)), value("q", (1, 2, 3, 4))], ["y"], sizes)
    rng = np.random.default_rng(0)
    feed = {"x": rng.standard_normal((1, 5, 2, 4)), "q": rng.standard_normal((1, 2, 3, 4))}
    assert close(*run(model, tmp_path, {name: array.astype(np.float32) for name, array in feed.items()}))


NORMALISED = [
    ("Transpose", ["q"], "t", HEADS),
    ("Mul", ["t", "t"], "squares", {}),
    ("ReduceSum", ["squares", "axis"], "sum", {"keepdims": 1}),
    ("Sqrt", ["sum"], "norm", {}),
    ("Expand", ["norm", "whole"], "norms", {}),
    ("Div", ["t", "norms"], "unit", {}),
    ("Mul", ["unit", "gains"], "scaled", {}),
    ("MatMul", ["scaled", "k"], "y", {}),
]


def normalised():
    """Heads (1, 2, 4, 6) normalised along the last axis, which is not the source's, then multiplied."""
    nodes = [helper.make_node(kind, names, [result], **more) for kind, names, result, more in NORMALISED]
    constants = {
        "axis": np.array([-1]),
        "whole": np.array([1, 2, 4, 6]),
        "gains": np.arange(1, 9, dtype=np.float32).reshape(2, 4, 1),
    }
    return model_of(nodes, [value("q", (1, 6, 2, 4)), value("k", (1, 2, 6, 5))], ["y"], constants)


def test_what_works_along_an_axis_works_on_the_source(tmp_path):
    rng = np.random.default_rng(0)
    feed = {"q": rng.standard_normal((1, 6, 2, 4)), "k": rng.standard_normal((1, 2, 6, 5))}
    assert close(*run(normalised(), tmp_path, {name: array.astype(np.float32) for name, array in feed.items()}))


@pytest.mark.parametrize("kind", ["Exp", "Relu"])
def test_one_operand_in_the_order_of_the_source(kind):
    nodes = [("Transpose", ["x"], "t", {"perm": [1, 0]}), (kind, ["t"], "e", {})]
    nodes.append(("Transpose", ["e"], "y", {"perm": [1, 0]}))
    assert not any(name in MOVES for name in assigned(nodes, {"x": (2, 3)}, (2, 3)))


def test_views_in_other_orders_meet_as_plain_tensors(tmp_path):
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[1, 2, 0]),
        helper.make_node("Transpose", ["x"], ["b"], perm=[2, 0, 1]),
        helper.make_node("Transpose", ["b"], ["c"], perm=[2, 1, 0]),
        helper.make_node("Add", ["a", "c"], ["y"]),
    ]
    x = np.random.default_rng(0).standard_normal((3, 3, 3)).astype(np.float32)
    assert close(*run(model_of(nodes, [value("x", x.shape)], ["y"]), tmp_path, {"x": x}))


@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMean"])
@pytest.mark.parametrize("keep", [0, 1])
def test_reductions_of_a_view(kind, keep, tmp_path):
    axes = {"axes": [2]} if kind == "ReduceMean" else {}
    inputs = ["t", "axis"] if kind == "ReduceSum" else ["t"]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[2, 0, 1]),
        helper.make_node(kind, inputs, ["y"], keepdims=keep, **axes),
    ]
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    model = model_of(nodes, [value("x", x.shape)], ["y"], {"axis": np.array([2])})
    assert close(*run(model, tmp_path, {"x": x}))
