"""Signals of one dimension as images of one row: what becomes of a graph, and that it computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from autotune.importer.conversion.operator_catalog import import_graph
from autotune.importer.images.lines import lines_as_images
from autotune.importer.layouts.precision import products
from autotune.importer.load import load_model
from autotune.importer.program import simplify
from autotune.importer.rewriting.relax_values import shape_of
from autotune.validation.short_operands import product_nodes
from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written
from tests.models.catalog import cached

RNG = np.random.default_rng(0)


def weight(*shape):
    return RNG.standard_normal(shape).astype(np.float32) * np.float32(0.3)


def model(nodes, weights, shapes, outputs):
    """A model of inputs x0, … of ``shapes``."""
    return model_of(nodes, [value(f"x{index}", shape) for index, shape in enumerate(shapes)], outputs, weights)


def feed_of(shapes):
    return {f"x{index}": RNG.standard_normal(shape).astype(np.float32) for index, shape in enumerate(shapes)}


def speech():
    """Convolutions of every kind of attribute, elementwise operators, a residual, pools, a mean over the signal."""
    nodes = [
        helper.make_node("Conv", ["x0", "w0", "b0"], ["a"], pads=[2, 1], strides=[2]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["b"], pads=[2, 2], dilations=[2]),
        helper.make_node("Add", ["b", "shift"], ["s"]),
        helper.make_node("Sigmoid", ["s"], ["g"]),
        helper.make_node("Mul", ["s", "g"], ["silu"]),
        helper.make_node("Add", ["silu", "r"], ["sum"]),
        helper.make_node("Conv", ["sum", "w2"], ["d"], group=16, pads=[1, 1]),
        helper.make_node("MaxPool", ["d"], ["m"], kernel_shape=[3], strides=[2], pads=[1, 0]),
        helper.make_node("AveragePool", ["m"], ["p"], kernel_shape=[2], strides=[1], pads=[0, 1]),
        helper.make_node("Div", ["p", "half"], ["y0"]),
        helper.make_node("ReduceMean", ["y0"], ["y1"], axes=[2]),
    ]
    weights = {
        "w0": weight(16, 5, 4),
        "b0": weight(16),
        "w1": weight(16, 16, 3),
        "w2": weight(16, 1, 3),
        "shift": weight(1, 16, 1),
        "half": np.float32(0.5),
    }
    return model(nodes, weights, [(2, 5, 40)], ["y0", "y1"]), [(2, 5, 40)]


def columns():
    """Images of one column, reshaped to signals behind the convolution."""
    nodes = [
        helper.make_node("Conv", ["x0", "w0"], ["a"], kernel_shape=[5, 1], pads=[2, 0, 1, 0], strides=[2, 1]),
        helper.make_node("Squeeze", ["a", "last"], ["s"]),
        helper.make_node("Add", ["s", "x1"], ["t"]),
        helper.make_node("Unsqueeze", ["t", "last"], ["u"]),
        helper.make_node("Conv", ["u", "w1"], ["y0"], kernel_shape=[3, 1]),
    ]
    shapes = [(1, 8, 30, 1), (1, 1, 15)]
    weights = {"w0": weight(16, 8, 5, 1), "w1": weight(4, 16, 3, 1), "last": np.array([3])}
    return model(nodes, weights, shapes, ["y0"]), shapes


def words(channels=1):
    """Filters as wide as their image over the rows of an image, as text classifiers have them."""
    nodes = [
        helper.make_node("Conv", ["x0", "w0", "b0"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Squeeze", ["r", "last"], ["s"]),
        helper.make_node("ReduceMax", ["s"], ["y0"], axes=[2], keepdims=0),
        helper.make_node("Conv", ["x0", "w1"], ["y1"], pads=[2, 0, 1, 0], strides=[2, 1], dilations=[3, 1]),
    ]
    shapes = [(2, channels, 31, 24)]
    weights = {"w0": weight(20, channels, 3, 24), "b0": weight(20), "w1": weight(8, channels, 4, 24)}
    return model(nodes, weights | {"last": np.array([3])}, shapes, ["y0", "y1"]), shapes


def images_of_words():
    """The same over images of several channels."""
    return words(channels=5)


def calls(module):
    """Names and result shapes of the operators, in order."""
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    return [(str(getattr(getattr(b.value, "op", None), "name", "")), shape_of(b.var)) for b in bindings]


@pytest.mark.parametrize("graph_of", [speech, columns, words, images_of_words], ids=lambda graph_of: graph_of.__name__)
def test_the_same_is_computed(graph_of, tmp_path):
    graph, shapes = graph_of()
    written(graph, tmp_path)
    assert close(*run(graph, tmp_path, feed_of(shapes)))


def test_convolutions_have_their_template_and_take_what_is_elementwise_behind_them(tmp_path):
    program = imported(speech()[0], tmp_path)
    kinds = {task.template for task in program.tasks}
    assert {"conv2d", "depthwise", "pool"} <= kinds
    assert "generic" not in kinds
    assert sum(task.template == "conv2d" for task in program.tasks) == 2
    assert len(program.tasks) <= 9


@pytest.mark.parametrize("channels", [1, 5])
def test_filters_as_wide_as_their_image_are_convolved_along_rows(channels, tmp_path):
    module = lines_as_images(import_graph(simplify(load_model(written(words(channels)[0], tmp_path)))))
    results = [shape for name, shape in calls(module) if name == "relax.nn.conv2d"]
    assert results == [(2, 20, 1, 29), (2, 8, 1, 13)]
    turned = [shape for name, shape in calls(module) if name == "relax.permute_dims"]
    assert turned == [(2, channels, 24, 31)], "once for both"


def test_only_what_needs_a_signal_goes_back_to_one(tmp_path):
    module = lines_as_images(import_graph(simplify(load_model(written(speech()[0], tmp_path)))))
    kinds = [name for name, _ in calls(module)]
    assert "relax.nn.conv1d" not in kinds
    assert "relax.nn.max_pool1d" not in kinds
    signals = [shape for name, shape in calls(module) if name == "relax.reshape" and len(shape) == 3 and shape[0] == 2]
    assert signals == [(2, 16, 10)]  # the output, which the mean reads too


def test_products_are_numbered_as_onnxs_are(tmp_path):
    simple = simplify(load_model(written(speech()[0], tmp_path)))
    assert len(products(lines_as_images(import_graph(simple)))) == len(product_nodes(simple)) == 3


def test_a_model_without_signals_is_left_as_it_is():
    module = import_graph(simplify(load_model(cached("tiny_cnn"), {})))
    assert lines_as_images(module) is module


SHAPES = {
    "a full tensor of four axes": (3, 2, 16, 18),
    "one of which an axis is one": (3, 1, 16, 18),
    "five axes": (3, 2, 2, 1, 1),
    "one number per channel": (16, 1),
    "one number": (1,),
}
"""Name → shape of what is added to a signal (2, 16, 18)."""


@pytest.mark.parametrize("first", [False, True], ids=["signal first", "signal last"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_signal_is_added_to_a_tensor_of_any_rank(tmp_path, shape, first):
    nodes = [
        helper.make_node("Conv", ["x0", "w"], ["c"]),
        helper.make_node("Add", ["x1", "c"] if first else ["c", "x1"], ["y0"]),
    ]
    shapes = [(2, 4, 20), shape]
    graph = model(nodes, {"w": weight(16, 4, 3)}, shapes, ["y0"])
    written(graph, tmp_path)
    assert close(*run(graph, tmp_path, feed_of(shapes)))


def test_a_row_is_added_to_an_image_of_one_row(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x0", "w"], ["c"]),
        helper.make_node("Unsqueeze", ["c", "axis"], ["u"]),
        helper.make_node("Add", ["u", "x1"], ["y0"]),
    ]
    shapes = [(1, 4, 20), (1, 16, 1, 18)]
    graph = model(nodes, {"w": weight(16, 4, 3), "axis": np.array([2])}, shapes, ["y0"])
    written(graph, tmp_path)
    assert close(*run(graph, tmp_path, feed_of(shapes)))
