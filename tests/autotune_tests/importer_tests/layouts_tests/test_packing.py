"""Constants in the layouts that kernels read."""

import numpy as np
import pytest

from autotune.importer.layouts.packing import block_array, pack_conv, pack_matmul, reached


def test_missing_channels_are_filled():
    array = np.arange(2 * 5 * 2 * 3, dtype=np.float32).reshape(2, 5, 2, 3)
    blocked = block_array(array, 4, fill=7.0)
    assert blocked.shape == (2, 2, 2, 3, 4)
    np.testing.assert_array_equal(blocked[1, 0, 1, 2], array[1, :4, 1, 2])
    np.testing.assert_array_equal(blocked[1, 1, 1, 2], [array[1, 4, 1, 2], 7, 7, 7])


@pytest.mark.parametrize(("channels", "groups", "inner"), [(8, 1, 4), (3, 1, 1), (8, 2, 1)])
def test_packed_filters_hold_every_weight_once(channels, groups, inner):
    weight = np.arange(1, 1 + 8 * channels // groups * 9, dtype=np.float32).reshape(8, channels // groups, 3, 3)
    packed = pack_conv(weight, 4, inner, groups)
    assert packed.shape[0] == 2
    assert packed.shape[4:] == (inner, 4)
    np.testing.assert_array_equal(np.sort(packed[packed != 0]), weight.reshape(-1))


@pytest.mark.parametrize(("columns", "panels"), [(16, (2, 8)), (12, (3, 4)), (10, (2, 8))])
def test_columns_lie_in_panels(columns, panels):
    weight = np.arange(1, 1 + 3 * columns, dtype=np.float32).reshape(3, columns)
    packed = pack_matmul(weight, 8)
    assert packed.shape == (panels[0], 3, panels[1])
    np.testing.assert_array_equal(packed.transpose(1, 0, 2).reshape(3, -1)[:, :columns], weight)


def convolved(image, weight, strides, pads, dilation):
    """By its definition, of one channel."""
    padded = np.pad(image, ((pads[0], pads[2]), (pads[1], pads[3])))
    sizes = [1 + (n - 1) * step for n, step in zip(weight.shape, dilation, strict=True)]
    out = [1 + (n - size) // stride for n, size, stride in zip(padded.shape, sizes, strides, strict=True)]
    return np.array(
        [
            [
                (padded[y : y + sizes[0] : dilation[0], x : x + sizes[1] : dilation[1]] * weight).sum()
                for x in range(0, out[1] * strides[1], strides[1])
            ]
            for y in range(0, out[0] * strides[0], strides[0])
        ]
    )


@pytest.mark.parametrize(
    ("strides", "pads", "dilation", "size"),
    [
        ((1, 1), (12, 12, 12, 12), (12, 12), (1, 1)),
        ((1, 1), (7, 3, 7, 3), (7, 3), (1, 3)),
        ((2, 1), (9, 4, 6, 4), (3, 2), None),
        ((1, 2), (5, 0, 0, 8), (1, 4), None),
        ((1, 1), (1, 1, 1, 1), (1, 1), (3, 3)),
        ((1, 1), (20, 20, 4, 4), (4, 4), None),
        ((1, 1), (9, 0, 0, 0), (7, 1), (3, 3)),
    ],
)
def test_filters_lose_the_places_that_meet_only_the_border(strides, pads, dilation, size):
    rng = np.random.default_rng(0)
    image, weight = rng.integers(-9, 9, (7, 6)), rng.integers(1, 9, (3, 3))
    expected = convolved(image, weight, strides, pads, dilation)
    small, left = reached(weight[None, None], image.shape, expected.shape, strides, pads, dilation)
    assert min(left) >= 0
    assert size is None or small.shape[2:] == size
    np.testing.assert_array_equal(convolved(image, small[0, 0], strides, left, dilation), expected)
