"""Where windows lie: sizes of outputs, and how far ceil mode reaches."""

from __future__ import annotations

import pytest
from tvm import te

from schedules.templates.common.windows import Window, pad_spatial


@pytest.mark.parametrize(
    ("size", "strides", "padding", "dilation", "expected"),
    [
        ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1), (13, 17)),
        ((3, 3), (2, 2), (0, 0, 0, 0), (1, 1), (6, 8)),
        ((2, 3), (1, 2), (0, 1, 1, 1), (1, 2), (13, 8)),
    ],
)
def test_outputs_are_as_many_as_windows_fit(size, strides, padding, dilation, expected) -> None:
    window = Window(size, strides, padding, dilation)
    assert window.output_size(13, 17) == expected
    assert window.overhang(expected, 13, 17) == (0, 0)


def test_ceil_mode_reaches_beyond_the_image() -> None:
    assert Window((3, 3), (2, 2), (0, 0, 0, 0), (1, 1)).overhang((7, 8), 14, 17) == (1, 0)


def test_no_padding_is_no_stage() -> None:
    x = te.placeholder((1, 2, 5, 5, 8), name="x")
    assert pad_spatial(x, (0, 0, 0, 0), 0.0) is x
    assert [int(size) for size in pad_spatial(x, (1, 2, 3, 4), 0.0).shape] == [1, 2, 9, 11, 8]
