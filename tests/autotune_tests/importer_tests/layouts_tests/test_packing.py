"""Constants in the layouts that kernels read."""

import numpy as np
import pytest

from autotune.importer.layouts.packing import block_array, pack_conv, pack_matmul


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
