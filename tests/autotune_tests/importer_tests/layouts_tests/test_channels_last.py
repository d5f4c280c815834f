"""A GPU's rules: depthwise and grouped convolutions, dense layers, products, reshapes of pooled images."""

import numpy as np
from onnx import helper

from autotune.importer.conversion.operator_catalog import import_graph
from autotune.importer.layouts.assign import assign_layouts
from autotune.importer.layouts.channels_last import ChannelsLast
from tests.autotune_tests.importer_tests.layouts_tests.test_assign import calls
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def assigned(nodes, inputs, output, weights):
    model = model_of(nodes, inputs, [], weights)
    model.graph.output.append(output)
    return assign_layouts(import_graph(model), ChannelsLast())


def test_weights_of_convolutions():
    nodes = [
        helper.make_node("Conv", ["x", "depthwise"], ["c"], group=8, pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "grouped"], ["y"], group=2),
    ]
    weights = {"depthwise": np.ones((8, 1, 3, 3), np.float32), "grouped": np.ones((6, 4, 1, 1), np.float32)}
    module, packed = assigned(nodes, [value("x", (1, 8, 5, 5))], value("y", (1, 6, 5, 5)), weights)
    assert [weight.shape for weight in packed] == [(3, 3, 8), (2, 4, 3)]
    assert calls(module)["depthwise"] == 1


def test_a_pooled_image_is_reshaped_for_free():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    weights = {"w": np.ones((8, 4, 1, 1), np.float32), "m": np.ones((8, 5), np.float32)}
    module, _ = assigned(nodes, [value("x", (1, 4, 5, 5))], value("y", (1, 5)), weights)
    counts = calls(module)
    assert counts["relax.permute_dims"] == 1
    assert counts["dense"] == 1


def test_a_transpose_is_part_of_the_product():
    nodes = [helper.make_node("Transpose", ["b"], ["t"], perm=[0, 2, 1]), helper.make_node("MatMul", ["a", "t"], ["y"])]
    module, _ = assigned(nodes, [value("a", (2, 3, 4)), value("b", (2, 5, 4))], value("y", (2, 3, 5)), {})
    assert calls(module) == {"product": 1}
