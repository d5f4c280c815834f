"""Inputs and outputs of models with open sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.interface import Extent, Growth, Interface, Joined, OpenSpec, axis_size

INTERFACE = Interface(
    (OpenSpec("x", ("batch", 6), "float32"), OpenSpec("mask", ("mask_0",), "bool")),
    (OpenSpec("y", ("batch", 6), "float32"), OpenSpec("w", (5,), "float32")),
    {(0, 0): Growth().then(2)},
    padded=frozenset({"batch"}),
)


@pytest.mark.parametrize(
    ("shapes", "sizes"),
    [
        ({"x": (3, 6), "mask": (4,)}, {"batch": 3, "mask_0": 4}),
        ({"x": (3, 7), "mask": (4,)}, None),
        ({"x": (3, 6)}, None),
        ({"x": (3,), "mask": (4,)}, None),
    ],
)
def test_sizes_of_a_call(shapes: dict[str, tuple[int, ...]], sizes: dict[str, int] | None) -> None:
    assert INTERFACE.sizes(shapes) == sizes


def test_outputs_follow_the_symbols_of_inputs() -> None:
    assert INTERFACE.symbols == ("batch", "mask_0")
    assert INTERFACE.axes("batch") == {"x": [0]}
    assert INTERFACE.cut_output(0, np.zeros((16, 6)), {"batch": 8}, {"batch": 3}).shape == (6, 6)
    assert INTERFACE.knows_outputs()


def test_data_read_back_is_the_same() -> None:
    assert Interface.from_data(INTERFACE.to_data()) == INTERFACE


@pytest.mark.parametrize("size", [1, 7, 32, 33])
def test_growths_are_as_their_steps(size):
    one = Growth().then(1, 1, 2)
    two = one.then(1, 1, 2).then(3, -1).then(1, 0, 4)
    assert one.of(size) == (size + 1) // 2
    assert two.of(size) == (3 * (((size + 1) // 2 + 1) // 2) - 1) // 4
    assert len(one.then(1, 5, 7).steps) == 1
    assert Growth().then(4, 0, 2) == Growth().then(2)
    assert Growth.from_data(two.to_data()) == two
    assert Growth().then(3, 0, 2).to_data() == "3/2"


@pytest.mark.parametrize("data", [[[0, 0, 1]], [[1, 0, 0]]])
def test_what_is_no_growth_is_refused(data):
    with pytest.raises(ValueError, match="no growth"):
        Growth.from_data(data)


def test_outputs_of_several_sizes_are_cut():
    grid = (Extent("h"), Extent("w", Growth().then(1, 1, 2)))
    axis = (Joined((grid, (2,), (3, Extent("h")))),)
    inputs = (OpenSpec("x", ("h", "w"), "float32"),)
    interface = Interface(inputs, (OpenSpec("y", (1, "of h, w"), "float32"),), {}, parts={(0, 1): axis})
    assert Interface.from_data(interface.to_data()) == interface
    full, few = {"h": 4, "w": 5}, {"h": 2, "w": 3}
    whole = np.arange(axis_size(axis, full))[None]
    parts = [np.arange(12).reshape(4, 3)[:2, :2], 12 + np.arange(2), 14 + np.arange(12).reshape(3, 4)[:, :2]]
    assert np.array_equal(interface.cut_output(0, whole, full, few), np.concatenate([p.ravel() for p in parts])[None])


def test_padded_sizes_have_limits():
    limited = replace(INTERFACE, limits={"batch": (8, 4)})
    assert [size for size in range(20) if limited.may_pad("batch", size)] == [8, 12, 16]
    assert not limited.may_pad("mask_0", 8)
    assert Interface.from_data(limited.to_data()) == limited
