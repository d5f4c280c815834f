"""Convolutions whose dilation is as large as their image, in bands without padding."""

import numpy as np
import pytest
from onnx import helper

from autotune.importer.fusion.bands import Band, bands_of
from autotune.importer.load import load_model
from autotune.importer.program import simplify
from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written


def model(weight, shape, **attributes):
    """A convolution with a bias, a batch norm and a Relu, and what to feed it."""
    rng = np.random.default_rng(0)
    filters = weight[0]
    numbers = {
        "w": (rng.standard_normal(weight) / np.sqrt(np.prod(weight[1:]))).astype(np.float32),
        "b": rng.standard_normal(filters).astype(np.float32),
        **{name: rng.uniform(0.5, 1, filters).astype(np.float32) for name in ("scale", "shift", "mean", "var")},
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    return model_of(nodes, [value("x", shape)], ["y"], numbers), {"x": rng.standard_normal(shape).astype(np.float32)}


def spread(rank, step):
    """Attributes of filters with three taps per axis that keep the size of the image."""
    return {"dilations": [step] * rank, "pads": [step] * 2 * rank}


@pytest.mark.parametrize(
    ("weight", "shape", "attributes", "convolutions"),
    [
        ((24, 16, 3, 3), (1, 16, 20, 20), spread(2, 12), 7),  # bands of four rows have too few positions
        ((8, 8, 3, 3), (1, 8, 33, 33), spread(2, 24), 9),
        ((8, 4, 3, 3), (2, 8, 33, 30), {**spread(2, 20), "group": 2}, 9),
        ((8, 4, 3), (1, 4, 300), spread(1, 128), 3),
        ((4, 3, 3, 3), (1, 3, 41, 37), {"dilations": [25, 1], "pads": [25, 1, 29, 1], "strides": [2, 1]}, 4),
        ((4, 2, 3, 3, 3), (1, 2, 9, 10, 11), spread(3, 5), 6),
        ((8, 4, 3, 3), (1, 4, 56, 56), spread(2, 1), 1),
        ((8, 4, 3, 3), (1, 4, 4, 4), spread(2, 3), 1),
    ],
)
def test_the_same_is_computed(weight, shape, attributes, convolutions, tmp_path):
    graph, feed = model(weight, shape, **attributes)
    simple = simplify(load_model(written(graph, tmp_path), {}))
    kinds = [node.op_type for node in simple.graph.node]
    assert kinds.count("Conv") == convolutions
    assert "Mul" not in kinds
    assert close(*run(graph, tmp_path, feed))


def test_bands_of_an_axis():
    assert bands_of(20, 20, 3, 1, 12, 12) == [Band(0, 8, 1, 3), Band(8, 12, 1, 2), Band(12, 20, 0, 2)]
    assert bands_of(5, 5, 1, 1, 1, 0) == [Band(0, 5, 0, 1)]


@pytest.mark.parametrize("seed", range(20))
def test_bands_use_the_same_taps_as_the_entire_convolution(seed):
    rng = np.random.default_rng(seed)
    image, taps, stride, step = (int(rng.integers(1, most)) for most in (40, 6, 4, 20))
    before, behind = (int(n) for n in rng.integers(0, 30, 2))
    behind = max(behind, (taps - 1) * step + 1 - image - before)
    result = (image + before + behind - (taps - 1) * step - 1) // stride + 1
    bands = bands_of(image, result, taps, stride, step, before)
    assert [band.start for band in bands] == [0, *(band.stop for band in bands[:-1])]
    assert bands[-1].stop == result
    met = {
        (place, tap) for band in bands for place in range(band.start, band.stop) for tap in range(band.first, band.last)
    }
    assert met == {
        (place, tap)
        for place in range(result)
        for tap in range(taps)
        if 0 <= place * stride - before + tap * step < image
    }
