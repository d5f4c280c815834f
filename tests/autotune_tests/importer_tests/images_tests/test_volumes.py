"""Volumes as images of their frames: what becomes of a graph, and that it computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written

RNG = np.random.default_rng(0)


def weight(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def video(batch=1):
    """Convolutions over frames, within frames, in groups and with holes; a residual, pools and a mean."""
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["a"], pads=[1, 1, 1, 1, 1, 1], strides=[1, 2, 2]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["b"], pads=[0, 1, 1, 0, 1, 1]),
        helper.make_node("Mul", ["b", "scale"], ["s"]),
        helper.make_node("Add", ["s", "r"], ["sum"]),
        helper.make_node("Conv", ["sum", "w2"], ["c"], pads=[2, 0, 0, 2, 0, 0], dilations=[2, 1, 1], strides=[2, 1, 1]),
        helper.make_node("Conv", ["c", "w3"], ["g"], group=4, pads=[0, 1, 1, 0, 1, 1]),
        helper.make_node("MaxPool", ["g"], ["m"], kernel_shape=[1, 2, 2], strides=[1, 2, 2]),
        helper.make_node("AveragePool", ["m"], ["y0"], kernel_shape=[2, 2, 2]),
        helper.make_node("ReduceMean", ["m"], ["y1"], axes=[2, 3, 4]),
    ]
    weights = {
        "w0": weight(16, 3, 3, 3, 3),
        "b0": weight(16),
        "w1": weight(16, 16, 1, 3, 3),
        "scale": weight(16, 1, 1, 1),
        "w2": weight(16, 16, 3, 1, 1),
        "w3": weight(16, 4, 1, 3, 3),
    }
    shape = (batch, 3, 7, 18, 20)
    return model_of(nodes, [value("x", shape)], ["y0", "y1"], weights), shape


@pytest.mark.parametrize("batch", [1, 2])
def test_the_same_is_computed(batch, tmp_path):
    graph, shape = video(batch)
    written(graph, tmp_path)
    assert close(*run(graph, tmp_path, {"x": RNG.standard_normal(shape).astype(np.float32)}))


def test_convolutions_have_their_template_and_frames_stay_images_between_them(tmp_path):
    program = imported(video()[0], tmp_path)
    templates = [task.template for task in program.tasks]
    assert templates.count("conv2d") == 4
    assert "pool" in templates
    names = [task.name for task in program.tasks]
    assert sum("unblock" in name for name in names) <= 2  # for the pool over frames and the mean
    assert not any(name.startswith("block") for name in names)


def test_a_volume_is_added_to_several(tmp_path):
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Add", ["z", "c"], ["y"])]
    shapes = {"x": (1, 3, 5, 8, 8), "z": (2, 16, 3, 6, 6)}
    graph = model_of(nodes, [value(*pair) for pair in shapes.items()], ["y"], {"w": weight(16, 3, 3, 3, 3)})
    written(graph, tmp_path)
    feed = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    assert close(*run(graph, tmp_path, feed))


KINDS = {
    "few filters": ((4, 8, 3, 3, 3), {"pads": [1] * 6}, 1),
    "few filters of some frames": ((2, 8, 3, 1, 3), {"dilations": [2, 1, 1]}, 1),
    "few filters, padded by more than a filter": ((3, 8, 2, 1, 1), {"pads": [3, 0, 0, 2, 0, 0]}, 1),
    "a filter for each channel": ((8, 1, 3, 3, 3), {"pads": [1] * 6, "group": 8}, 3),
    "groups": ((16, 2, 2, 3, 3), {"strides": [2, 1, 1], "group": 4}, 2),
    "full vectors of filters": ((16, 8, 3, 3, 3), {"pads": [1, 0, 0, 1, 0, 0], "strides": [2, 2, 2]}, 1),
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", KINDS)
def test_convolutions_of_every_kind_are_those_of_images(name, batch, tmp_path):
    shape, attributes, expected = KINDS[name]
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)
    size = (batch, 8, 7, 9, 10)
    graph = model_of([node], [value("x", size)], ["y"], {"w": weight(*shape), "b": weight(shape[0])})
    written(graph, tmp_path)
    assert close(*run(graph, tmp_path, {"x": RNG.standard_normal(size).astype(np.float32)}))
    products = ("conv2d", "depthwise", "channel_sums")
    tasks = [task for task in imported(graph, tmp_path).tasks if task.template in products]
    assert sum(task.weight for task in tasks) == expected
