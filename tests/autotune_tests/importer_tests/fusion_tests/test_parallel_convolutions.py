"""Convolutions side by side that become one."""

import numpy as np
import pytest
from onnx import helper

from autotune.importer.load import load_model
from autotune.importer.program import simplify
from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written

CHANNELS = 8
NORM = ("scale", "shift", "mean", "var")


class Branches:
    """A model that adds branches of one image."""

    def __init__(self, shape):
        self.shape, self.nodes, self.numbers, self.sum = shape, [], {}, ""
        self.rng = np.random.default_rng(0)

    def conv(self, filters, taps, data="x", group=1, **attributes):
        """A convolution behind a batch norm."""
        name = f"c{len(self.nodes)}"
        shape = (filters, self.shape[1] // group, *taps)
        self.numbers[f"{name}w"] = (self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        self.nodes.append(helper.make_node("Conv", [data, f"{name}w"], [name], group=group, **attributes))
        return self.norm(filters, name)

    def norm(self, channels, data="x"):
        name = f"n{len(self.nodes)}"
        self.numbers |= {name + part: self.rng.uniform(0.5, 1.5, channels).astype(np.float32) for part in NORM}
        self.nodes.append(helper.make_node("BatchNormalization", [data, *(name + part for part in NORM)], [name]))
        return name

    def add(self, *names, kind="Add"):
        for name in names:
            total = f"s{len(self.nodes)}"
            if self.sum:
                self.nodes.append(helper.make_node(kind, [self.sum, name], [total]))
            self.sum = total if self.sum else name
        return self

    def model(self, *outputs):
        self.nodes.append(helper.make_node("Relu", [self.sum], ["y"]))
        return model_of(self.nodes, [value("x", self.shape)], ["y", *outputs], self.numbers)


def repvgg(shape=(1, CHANNELS, 9, 7), group=1):
    """Three by three, one by one, and the image itself."""
    branches = Branches(shape)
    wide = branches.conv(CHANNELS, (3, 3), pads=[1, 1, 1, 1], group=group)
    return branches.add(branches.norm(CHANNELS), branches.conv(CHANNELS, (1, 1), group=group), wide)


def strided():
    branches = Branches((2, CHANNELS, 9, 8))
    wide = branches.conv(12, (5, 3), pads=[2, 1, 2, 1], strides=[2, 2])
    return branches.add(
        wide, branches.conv(12, (1, 1), strides=[2, 2]), branches.conv(12, (3, 1), pads=[1, 0, 1, 0], strides=[2, 2])
    )


def dilated():
    """A filter whose taps lie two apart, inside of one of five."""
    branches = Branches((1, CHANNELS, 12, 12))
    wide = branches.conv(CHANNELS, (5, 5), pads=[2] * 4, group=CHANNELS)
    return branches.add(wide, branches.conv(CHANNELS, (3, 3), pads=[2] * 4, dilations=[2, 2], group=CHANNELS))


def difference():
    """The mixer of FastViT."""
    branches = Branches((1, CHANNELS, 8, 8))
    wide = branches.conv(CHANNELS, (3, 3), pads=[1] * 4, group=CHANNELS)
    return branches.add(branches.norm(CHANNELS), wide, kind="Sub")


def repvit():
    """A depthwise filter, one number for each channel, and the image as it is."""
    branches = Branches((1, CHANNELS, 8, 8))
    wide = branches.conv(CHANNELS, (3, 3), pads=[1] * 4, group=CHANNELS)
    branches.add(wide, branches.conv(CHANNELS, (1, 1), group=CHANNELS), "x")
    branches.sum = branches.norm(CHANNELS, branches.sum)
    return branches


def line():
    branches = Branches((1, CHANNELS, 30))
    return branches.add(branches.conv(6, (3,), pads=[1, 1]), branches.conv(6, (1,)))


@pytest.mark.parametrize(
    "branches",
    [repvgg(), repvgg(group=2), repvgg(group=CHANNELS), strided(), dilated(), difference(), repvit(), line()],
)
def test_one_convolution_is_left(branches, tmp_path):
    graph = branches.model()
    simple = simplify(load_model(written(graph, tmp_path), {}))
    assert [node.op_type for node in simple.graph.node] == ["Conv", "Relu"]
    feed = {"x": np.random.default_rng(1).standard_normal(branches.shape).astype(np.float32)}
    assert close(*run(graph, tmp_path, feed))


def other_images():
    branches = Branches((1, CHANNELS, 8, 8))
    branches.nodes.append(helper.make_node("Relu", ["x"], ["r"]))
    return branches.add(branches.conv(6, (1, 1)), branches.conv(6, (1, 1), data="r"))


def other_places():
    """Filters of which each reads a pixel that the other one does not."""
    branches = Branches((1, CHANNELS, 8, 8))
    return branches.add(branches.conv(6, (2, 2), pads=[0, 0, 1, 1]), branches.conv(6, (2, 2), pads=[1, 1, 0, 0]))


def other_groups():
    branches = Branches((1, CHANNELS, 8, 8))
    return branches.add(branches.conv(CHANNELS, (1, 1)), branches.conv(CHANNELS, (1, 1), group=2))


@pytest.mark.parametrize("branches", [other_images(), other_places(), other_groups()])
def test_what_stays(branches, tmp_path):
    graph = branches.model()
    simple = simplify(load_model(written(graph, tmp_path), {}))
    assert [node.op_type for node in simple.graph.node].count("Conv") == 2
    feed = {"x": np.random.default_rng(1).standard_normal(branches.shape).astype(np.float32)}
    assert close(*run(graph, tmp_path, feed))


def test_a_branch_that_others_read_stays(tmp_path):
    branches = Branches((1, CHANNELS, 8, 8))
    read = branches.conv(6, (1, 1))
    graph = branches.add(read, branches.conv(6, (1, 1))).model(read)
    simple = simplify(load_model(written(graph, tmp_path), {}))
    assert [node.op_type for node in simple.graph.node].count("Conv") == 2
