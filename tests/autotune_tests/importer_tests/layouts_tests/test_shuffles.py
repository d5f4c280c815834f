"""Channel shuffles are read in place by what follows them, or emitted for what cannot."""

import numpy as np
import pytest
from onnx import helper

from autotune.importer.layouts.shuffles import before_shuffle, places
from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

RNG = np.random.default_rng(0)
SHAPE = (1, 4, 5, 6)
CHANNELS = 24


def array(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def shuffle(source, out, groups):
    parts = np.array([1, groups, CHANNELS // groups, 5, 6], np.int64)
    nodes = [
        helper.make_node("Reshape", [source, f"{out}_parts"], [f"{out}_split"]),
        helper.make_node("Transpose", [f"{out}_split"], [f"{out}_swapped"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", [f"{out}_swapped", f"{out}_whole"], [out]),
    ]
    return nodes, {f"{out}_parts": parts, f"{out}_whole": np.array([1, CHANNELS, 5, 6], np.int64)}


def conv(source, out, inputs, groups, kernel=1, outputs=CHANNELS):
    pads = [kernel // 2] * 4
    node = helper.make_node("Conv", [source, f"{out}_w", f"{out}_b"], [out], group=groups, pads=pads)
    return [node], {f"{out}_w": array(outputs, inputs // groups, kernel, kernel), f"{out}_b": array(outputs)}


def checked(folder, parts, outputs=("y",)):
    """The names of the kernels, after a check that they compute what ONNX Runtime does."""
    nodes, weights = [], {}
    for made, constants in parts:
        nodes += made
        weights |= constants
    model = model_of(nodes, [value("x", SHAPE)], list(outputs), weights)
    assert close(*run(model, folder, {"x": RNG.standard_normal(SHAPE).astype(np.float32)}))
    return [task.name for task in imported(model, folder).tasks]


def relu(source, out):
    return [helper.make_node("Relu", [source], [out])], {}


STEM = conv("x", "a", 4, 1, 3)
UNIT = [STEM, relu("a", "r"), shuffle("r", "s", 3), conv("s", "d", CHANNELS, CHANNELS, 3), relu("d", "e")]


@pytest.mark.parametrize("groups", [1, 2, 3, 4])
def test_a_shuffle_is_part_of_the_convolution_that_reads_it(tmp_path, groups):
    kernels = checked(tmp_path, [*UNIT, conv("e", "y", CHANNELS, groups)])
    assert len(kernels) == 4, kernels  # the last one unblocks
    assert not [name for name in kernels if "transpose" in name], kernels


def test_numbers_for_each_channel_are_in_the_order_of_the_image(tmp_path):
    scale = {"scale": array(CHANNELS, 1, 1), "shift": array(1, CHANNELS, 1, 1)}
    nodes = [helper.make_node("Mul", ["d", "scale"], ["m"]), helper.make_node("Sub", ["shift", "m"], ["n"])]
    kernels = checked(tmp_path, [*UNIT[:-1], (nodes, scale), conv("n", "y", CHANNELS, 2)])
    assert not [name for name in kernels if "transpose" in name], kernels


def test_what_cannot_read_it_in_place_gets_it_emitted(tmp_path):
    add = [helper.make_node("Add", ["e", "a"], ["y"])], {}
    pool = [helper.make_node("MaxPool", ["e"], ["z"], kernel_shape=[2, 2])], {}
    kernels = checked(tmp_path, [*UNIT, add, pool], ["y", "z"])
    assert [name for name in kernels if "transpose" in name]


def test_places_are_those_of_a_transpose():
    channels = np.arange(12)
    assert np.array_equal(places(12, 3), channels.reshape(3, 4).T.reshape(-1))
    assert np.array_equal(before_shuffle(places(12, 3), 3, 0), channels)
