"""Operators that keep the layout of their operand."""

import numpy as np
import pytest
from onnx import helper

from autotune.importer.conversion.operator_catalog import import_graph
from autotune.importer.layouts.assign import assign_layouts
from autotune.importer.layouts.blocked import Blocked
from autotune.importer.layouts.channels_last import ChannelsLast
from tests.autotune_tests.importer_tests.layouts_tests.test_assign import calls
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def behind_a_convolution(nodes, channels, shape, layouts, weights=None):
    """Calls of a convolution that makes (1, channels, 4, 4), then ``nodes`` from "c" to "y"."""
    weights = {"w": np.ones((channels, 8, 1, 1), np.float32), **(weights or {})}
    model = model_of([helper.make_node("Conv", ["x", "w"], ["c"]), *nodes], [value("x", (1, 8, 4, 4))], [], weights)
    model.graph.output.append(value("y", shape))
    return calls(assign_layouts(import_graph(model), layouts)[0])


@pytest.mark.parametrize(("kind", "channels", "unblocked"), [("Relu", 12, 1), ("Sqrt", 16, 1), ("Sqrt", 12, 1)])
def test_one_conversion_behind_an_elementwise_operator(kind, channels, unblocked):
    nodes = [helper.make_node(kind, ["c"], ["e"]), helper.make_node("Neg", ["e"], ["y"])]
    assert behind_a_convolution(nodes, channels, (1, channels, 4, 4), Blocked(8))["unblock"] == unblocked


@pytest.mark.parametrize("constant", [(), (1,), (16, 1, 1), (1, 1, 4, 4), (1, 16, 4, 4)])
@pytest.mark.parametrize("make", [lambda: Blocked(8), ChannelsLast])
def test_constants_are_given_the_layout_of_the_image(constant, make):
    nodes = [helper.make_node("Mul", ["c", "k"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    found = behind_a_convolution(nodes, 16, (1, 16, 4, 4), make(), {"k": np.full(constant, 2, np.float32)})
    assert found["relax.multiply"] == 1
    assert found["unblock"] + found["relax.permute_dims"] == (1 if found["unblock"] else 2)


def test_a_mean_over_the_image_stays_native():
    nodes = [helper.make_node("ReduceMean", ["c"], ["m"], axes=[2, 3]), helper.make_node("Mul", ["c", "m"], ["y"])]
    assert behind_a_convolution(nodes, 16, (1, 16, 4, 4), Blocked(8))["unblock"] == 1


def test_few_channels_are_pooled_plain():
    nodes = [helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[2, 2])]
    assert behind_a_convolution(nodes, 4, (1, 4, 3, 3), Blocked(8))["pool"] == 0
    assert behind_a_convolution(nodes, 8, (1, 8, 3, 3), Blocked(8))["pool"] == 1
