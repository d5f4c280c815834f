"""One walk assigns layouts: conversions only where they are needed."""

from collections import Counter

import numpy as np
import pytest
from onnx import helper
from tvm import relax

from autotune.importer.conversion.operator_catalog import import_graph
from autotune.importer.layouts.assign import assign_layouts
from autotune.importer.layouts.blocked import Blocked
from autotune.importer.layouts.channels_last import ChannelsLast
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def calls(module):
    """Kernels and operations that ``main`` calls."""
    counts = Counter()
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            if isinstance(call, relax.Call):
                is_kernel = str(call.op.name) == "relax.call_tir"
                counts[call.args[0].name_hint if is_kernel else str(call.op.name)] += 1
    return counts


def network():
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((16, 16, 3, 3)).astype(np.float32) for name in ("a", "b")}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "b"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["d", "r"], ["e"]),
        helper.make_node("Concat", ["e", "r"], ["y"], axis=1),
    ]
    model = model_of(nodes, [value("x", (1, 16, 6, 6))], [], weights)
    model.graph.output.append(value("y", (1, 32, 6, 6)))
    return import_graph(model)


def test_conversions_stand_at_the_ends_only():
    module, weights = assign_layouts(network(), Blocked(8))
    counts = calls(module)
    assert (counts["block"], counts["unblock"]) == (1, 1)
    assert counts["relax.permute_dims"] == 0
    assert sorted(weight.shape for weight in weights) == [(2, 2, 3, 3, 8, 8)] * 2
    assert int(module["main"].attrs["num_input"]) == 1


def test_channels_last_for_a_gpu():
    module, weights = assign_layouts(network(), ChannelsLast())
    assert calls(module)["relax.permute_dims"] == 2
    assert sorted(weight.shape for weight in weights) == [(1, 144, 16)] * 2


@pytest.mark.parametrize("layouts", [Blocked(8), ChannelsLast()])
def test_what_is_computed_from_constants_is_folded(layouts):
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)]
    model = model_of(nodes, [value("x", (4, 24))], [], {"w": np.ones((32, 24), np.float32)})
    model.graph.output.append(value("y", (4, 32)))
    module, weights = assign_layouts(import_graph(model), layouts)
    assert calls(module)["relax.permute_dims"] == 0
    assert len(weights) == 1
