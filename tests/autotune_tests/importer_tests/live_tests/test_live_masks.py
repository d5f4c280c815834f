"""Masks and counts of what counts, as nodes that ONNX's evaluator runs."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from autotune.frame.noise import live_name
from autotune.importer.live.live_masks import Masks
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.rewriting.emit import Emit, Node
from autotune.interface import Extent, Growth, Joined

LIVE = {"n": 8, "m": 3}
HALF = Extent("n", Growth().then(1, 1, 2))


def made(build, n, m=3):
    """The value that ``build`` emits, where the first n and m of the open sizes count."""
    inputs = [helper.make_tensor_value_info(live_name(name), TensorProto.BOOL, [size]) for name, size in LIVE.items()]
    node = helper.make_node("Identity", [live_name("n")], ["x"])
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("x", TensorProto.BOOL, [8])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    e = Emit(Node(node, Scope(model)))
    name = build(e)
    model.graph.node.extend(e.nodes)
    del model.graph.output[:]
    model.graph.output.append(onnx.ValueInfoProto(name=name))
    feed = {live_name("n"): np.arange(8) < n, live_name("m"): np.arange(3) < m}
    return ReferenceEvaluator(model).run(None, feed)[0]


@pytest.mark.parametrize("n", [8, 5, 1])
def test_counts(n):
    masks = Masks(LIVE, {})
    assert made(lambda e: masks.count(e, HALF), n) == [(n + 1) // 2]
    axes = ((2,), (HALF,), (Extent("m"), 5))
    assert made(lambda e: Masks(LIVE, {}).total(e, axes, [0, 1, 2], TensorProto.FLOAT), n, 2) == [
        2 * ((n + 1) // 2) * 2 * 5
    ]


@pytest.mark.parametrize("n", [8, 5, 1])
def test_masks_of_parts(n):
    axes = ((4,), (HALF,), (2, Extent("m")), (Joined(((Extent("n"),), (2,))),))
    masks = Masks(LIVE, {"v": axes})
    assert masks.open_axes("v") == [1, 2, 3]
    assert masks.open_axes("v", [0, 2]) == [2]
    mask = made(lambda e: masks.mask(e, axes, [1, 2, 3]), n, 2)
    one = np.arange(4) < (n + 1) // 2
    two = np.tile(np.arange(3) < 2, 2)
    three = np.r_[np.arange(8) < n, [True, True]]
    assert np.array_equal(mask, (one[:, None, None] & two[:, None] & three)[None])


def test_values_that_are_not_followed_have_no_open_axes():
    assert Masks(LIVE, {}).open_axes("x") == []
    assert Masks({}, {"v": ((Extent("n"),),)}).open_axes("v") == []
