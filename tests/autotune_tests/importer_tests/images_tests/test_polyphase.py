"""Few long filters over a signal, with places of the result as channels."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from autotune.importer.conversion.operator_catalog import import_graph
from autotune.importer.images.polyphase import SUMS, Polyphase, few_filters
from autotune.importer.load import load_model
from autotune.importer.program import simplify
from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written
from tests.models.catalog import cached


def model(weight, shape, **attributes):
    """A convolution with a bias and a Relu, and what to feed it."""
    rng = np.random.default_rng(0)
    weights = {
        "w": (rng.standard_normal(weight) / np.prod(weight[1:])).astype(np.float32),
        "b": rng.standard_normal(weight[0]).astype(np.float32),
    }
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes), helper.make_node("Relu", ["c"], ["y"])]
    return model_of(nodes, [value("x", shape)], ["y"], weights), {"x": rng.standard_normal(shape).astype(np.float32)}


@pytest.mark.parametrize(
    ("weight", "shape", "attributes"),
    [
        ((1, 1, 256), (2, 1, 3000), {"strides": [2], "pads": [127, 127]}),
        ((1, 1, 64), (1, 1, 500), {}),
        ((2, 2, 65), (2, 2, 301), {"strides": [3], "pads": [5, 0]}),
        ((3, 1, 80), (1, 1, 400), {"pads": [10, 10]}),
        ((1, 1, 1, 256), (1, 1, 1, 900), {"strides": [1, 2]}),
        ((8, 8, 3, 39), (1, 8, 9, 50), {"pads": [1, 19, 1, 19]}),
        ((3, 4, 9, 9), (2, 4, 21, 30), {"pads": [4, 4, 4, 4], "strides": [2, 1]}),
    ],
)
def test_the_same_is_computed(weight, shape, attributes, tmp_path):
    graph, feed = model(weight, shape, **attributes)
    written(graph, tmp_path)
    assert close(*run(graph, tmp_path, feed))


def test_a_resampler_fills_its_vectors(tmp_path):
    graph, _ = model((1, 1, 256), (1, 1, 4000), strides=[2])
    (task,) = (task for task in imported(graph, tmp_path).tasks if task.template == "conv2d")
    assert task.flop < 1.3 * 2 * 256 * (1 + (4000 - 256) // 2)


@pytest.mark.parametrize(
    ("shape", "stride", "worth"),
    [((1, 1, 1, 256), 2, True), ((8, 8, 3, 39), 1, True), ((1, 8, 3, 3), 1, False), ((16, 1, 1, 256), 2, False)],
)
def test_it_is_used_where_it_multiplies_much_less(shape, stride, worth):
    form = Polyphase(np.ones(shape, np.float32), (1, stride), (0, 0, 0, 0), (1, 100))
    assert form.is_worth_it is worth
    if worth:
        assert form.folded().shape[0] == SUMS
        assert (form.folded() != 0).sum() == form.fold * np.prod(shape)


def test_a_model_of_many_filters_is_left_as_it_is():
    module = import_graph(simplify(load_model(cached("tiny_cnn"), {})))
    before = module["main"]
    assert few_filters(module)["main"].same_as(before)
