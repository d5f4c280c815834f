"""Inputs and outputs of models with open sizes."""

from __future__ import annotations

import pytest

from autotune.interface import Growth, Interface, OpenSpec

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
    assert INTERFACE.output_shape(0, (16, 6), {"batch": 3}) == (6, 6)
    assert INTERFACE.knows_outputs()


def test_data_read_back_is_the_same() -> None:
    assert Interface.from_data(INTERFACE.to_data()) == INTERFACE
