"""Transposed convolutions are convolutions, with an output for every place within a step."""

import math

import numpy as np
import pytest
from onnx import helper

from tests.autotune_tests.importer_tests.onnx_cases import model_of, rewritten, value

TRANSPOSED = {
    "implied pads": ((1, 3, 4, 4), (3, 2, 3, 3), {"strides": [2, 2], "output_shape": [9, 9]}),
    "padded to the same size": ((1, 3, 4, 4), (3, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "filters that do not overlap": ((2, 3, 4, 6), (3, 5, 2, 2), {"strides": [2, 2]}),
    "filters that overlap": ((1, 3, 4, 5), (3, 5, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "filters that no step divides": ((1, 3, 5, 4), (3, 2, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "more output": ((1, 3, 5, 4), (3, 2, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    "filters smaller than a step": ((1, 3, 5, 4), (3, 2, 2, 1), {"strides": [3, 2]}),
    "unlike steps": ((1, 3, 4, 4), (3, 2, 2, 5), {"strides": [2, 1], "pads": [0, 2, 1, 1]}),
    "steps of one": ((1, 3, 4, 4), (3, 2, 3, 3), {"strides": [1, 1], "pads": [1, 1, 1, 1]}),
    "a signal": ((2, 4, 20), (4, 3, 16), {"strides": [8], "pads": [4, 4]}),
    "groups": ((2, 6, 4, 5), (6, 5, 4, 3), {"strides": [2, 2], "pads": [1, 0, 1, 1], "group": 2}),
    "each channel by itself, many places": (
        (1, 5, 4, 3),
        (5, 1, 8, 9),
        {"strides": [4, 5], "pads": [2, 1, 2, 3], "group": 5},
    ),
    "each channel by itself, one place": ((1, 9, 7, 6), (9, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 9}),
    "several filters of each channel": ((1, 3, 4, 5), (3, 2, 3, 3), {"strides": [2, 2], "group": 3}),
    "a volume": ((1, 2, 3, 4, 3), (2, 3, 3, 2, 2), {"strides": [1, 2, 2], "pads": [1, 0, 0, 1, 0, 0]}),
}
"""Name → shapes of the input and the weight, attributes."""


def transposed(folder, shape, weight, attributes, bias=True):
    """What is left of a transposed convolution, which computes the same."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal(weight, np.float32)}
    filters = weight[1] * attributes.get("group", 1)
    weights |= {"b": rng.standard_normal(filters, np.float32)} if bias else {}
    nodes = [helper.make_node("ConvTranspose", ["x", *weights], ["y"], **attributes)]
    model = model_of(nodes, [value("x", shape)], ["y"], weights)
    return rewritten(model, folder, {"x": rng.standard_normal(shape, np.float32)})


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", list(TRANSPOSED))
def test_transposed_convolutions_are_convolutions(tmp_path, name, bias):
    counts = transposed(tmp_path, *TRANSPOSED[name], bias)
    assert counts["Conv"] == 1
    assert "ConvTranspose" not in counts


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("shape", "weight", "attributes"),
    [
        ((1, 3, 5, 4), (3, 16, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ((2, 3, 5, 4), (3, 17, 3, 5), {"strides": [2, 3]}),
        ((2, 4, 20), (4, 16, 5), {"strides": [2], "pads": [1, 0]}),
        ((1, 9, 5, 4), (9, 1, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1], "group": 9}),
        ((2, 17, 5, 4), (17, 1, 3, 4), {"strides": [2, 3], "output_padding": [1, 0], "group": 17}),
        ((1, 6, 5, 4), (6, 16, 3, 3), {"strides": [2, 2], "group": 2}),
    ],
    ids=["decoder", "unlike steps", "signal", "depthwise", "depthwise, unlike steps", "groups"],
)
def test_places_of_unlike_terms_are_convolutions_of_their_own(tmp_path, shape, weight, attributes, bias):
    counts = transposed(tmp_path, shape, weight, attributes, bias)
    assert counts["Conv"] == math.prod(attributes["strides"])
    assert "ConvTranspose" not in counts


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [2, 2], "group": 3},
        {"strides": [2, 2], "dilations": [2, 2]},
        {"pads": [3, 3, 3, 3]},
    ],
    ids=["few channels, each by itself", "holes", "more padding than filter"],
)
def test_other_transposed_convolutions_stay(tmp_path, attributes):
    weight = (3, 1 if "group" in attributes else 2, 2, 2)
    assert transposed(tmp_path, (1, 3, 9, 9), weight, attributes, bias=True)["ConvTranspose"] == 1
