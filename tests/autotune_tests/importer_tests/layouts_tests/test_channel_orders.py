"""Splits, concatenations and shuffles of channels: read where they lie, or moved once by one kernel."""

import numpy as np
import pytest
from onnx import helper

from autotune.importer.layouts.channel_orders import in_order, places
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
    for part, constants in parts:
        nodes += part
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
    assert [name for name in kernels if "channel_picks" in name]


def test_places_are_those_of_a_transpose():
    channels = np.arange(12)
    assert np.array_equal(places(12, 3), channels.reshape(3, 4).T.reshape(-1))
    assert np.array_equal(in_order(channels, places(12, 3), 0), np.argsort(places(12, 3)))


def split(source, outs, axis=1):
    sizes = np.array([CHANNELS // len(outs)] * len(outs), np.int64)
    return [helper.make_node("Split", [source, f"{source}_sizes"], list(outs), axis=axis)], {f"{source}_sizes": sizes}


def concat(out, *sources, axis=1):
    return [helper.make_node("Concat", list(sources), [out], axis=axis)], {}


def branching(source, out, half=CHANNELS // 2):
    """A unit of ShuffleNet v2: half of the channels go round a branch, and all are shuffled."""
    left, right, middle = f"{out}_l", f"{out}_r", f"{out}_m"
    return [
        split(source, [left, right]),
        conv(right, f"{out}_1", half, 1, outputs=half),
        conv(f"{out}_1", f"{out}_2", half, half, 3, outputs=half),
        conv(f"{out}_2", middle, half, 1, outputs=half),
        concat(f"{out}_c", left, middle),
        shuffle(f"{out}_c", out, 2),
    ]


def test_a_unit_of_halves_moves_only_what_its_branch_reads(tmp_path):
    units = [*branching("a", "u1"), *branching("u1", "u2"), *branching("u2", "u3"), *branching("u3", "u4")]
    kernels = checked(tmp_path, [STEM, *units, conv("u4", "y", CHANNELS, 1)])
    assert not [name for name in kernels if {"transpose", "slice", "concatenate"} & set(name.split("_"))], kernels
    assert [name for name in kernels if "channel_picks" in name]


def test_a_split_between_blocks_is_read_by_convolutions_of_every_kind(tmp_path):
    third = CHANNELS // 3
    parts = [
        split("a", ["p", "q", "r"]),
        conv("q", "d", third, third, 3, outputs=third),
        conv("r", "g", third, 2, outputs=third),
        concat("c", "d", "p", "g"),
        conv("c", "y", CHANNELS, 3),
    ]
    checked(tmp_path, [STEM, *parts])


def test_channels_that_are_read_twice(tmp_path):
    twice = concat("c", "a_l", "a_r", "a_l")
    wide = CHANNELS * 3 // 2
    parts = [split("a", ["a_l", "a_r"]), twice, conv("c", "d", wide, wide, 3, outputs=wide), conv("d", "y", wide, 1)]
    checked(tmp_path, [STEM, *parts])


def test_other_readers_get_the_channels_in_order(tmp_path):
    outputs = ["mean", "scaled", "pooled", "flat", "again"]
    nodes = [
        helper.make_node("GlobalAveragePool", ["s"], ["mean"]),
        helper.make_node("Mul", ["s", "scale"], ["scaled"]),
        helper.make_node("MaxPool", ["s"], ["pooled"], kernel_shape=[2, 2]),
        helper.make_node("Flatten", ["s"], ["flat"]),
        helper.make_node("Add", ["s", "a"], ["again"]),
    ]
    halves = [split("a", ["l", "r"]), conv("r", "m", CHANNELS // 2, 1, outputs=CHANNELS // 2), concat("c", "l", "m")]
    checked(tmp_path, [STEM, *halves, shuffle("c", "s", 2), (nodes, {"scale": array(CHANNELS, 1, 1)})], outputs)


def test_whole_blocks_are_still_written_in_place(tmp_path):
    wide = [conv("a", name, CHANNELS, 1, outputs=32) for name in ("b", "c")]
    halves = [helper.make_node("Split", ["d", "sizes"], ["l", "r"], axis=1)], {"sizes": np.array([16, 48], np.int64)}
    parts = [*wide, concat("d", "b", "c"), halves, concat("e", "l", "r"), conv("e", "y", 64, 1)]
    kernels = checked(tmp_path, [STEM, *parts])
    assert not [name for name in kernels if "channel_picks" in name], kernels


def test_what_follows_a_concatenation_is_part_of_what_makes_its_parts(tmp_path):
    scale = {"scale": array(CHANNELS, 1, 1)}
    halves = [conv("a", name, CHANNELS, 1, outputs=CHANNELS // 2) for name in ("b", "c")]
    behind = [helper.make_node("Relu", ["d"], ["e"]), helper.make_node("Mul", ["e", "scale"], ["f"])], scale
    parts = [*halves, concat("d", "b", "c"), behind, conv("f", "y", CHANNELS, 1)]
    kernels = checked(tmp_path, [STEM, *parts])
    assert not [name for name in kernels if name.startswith(("relu", "multiply", "fused_relu"))], kernels
