"""Packed weights are the numbers that they were made of."""

import numpy as np
import pytest

from autotune.importer.low_bits import low_bit_packing
from autotune.importer.low_bits.low_bit_packing import LowBits, pack_groups, pack_levels, pack_zeros, unpacked

K, N, GROUP = 64, 21, 16


def weight(bits, order, signed=False, columns=N):
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 1 << bits, (columns, K), np.uint8)
    stored = levels ^ np.uint8(1 << (bits - 1)) if signed else levels
    stored = stored if order == "nk" else stored.T
    if bits == 4:
        stored = stored.reshape(-1, 2)
        stored = stored[:, 0] | stored[:, 1] << 4
    scale = rng.random((columns, K // GROUP), np.float32)
    zero = rng.integers(0, 1 << bits, scale.shape, np.uint8)
    return LowBits(
        bits, GROUP, K, columns, order, np.ascontiguousarray(stored).reshape(-1), scale, zero, signed
    ), levels


def read_back(packed, bits):
    """Levels (N, K) of what a kernel reads."""
    halves = [packed & 15, packed >> 4] if bits == 4 else [packed]
    numbers = np.stack(halves, 3)
    return numbers.transpose(0, 2, 1, 3, 4).reshape(-1, K)


@pytest.mark.parametrize("chunk", [1, 1 << 20])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("bits", "order", "columns"), [(4, "nk", N), (8, "nk", N), (4, "kn", N + 1), (8, "kn", N)])
def test_levels_are_where_a_dot_product_reads_them(bits, order, columns, signed, chunk, monkeypatch):
    monkeypatch.setattr(low_bit_packing, "CHUNK_BYTES", chunk)
    matrix, levels = weight(bits, order, signed, columns)
    packed = pack_levels(matrix, 16)
    assert packed.nbytes == 32 * K * bits // 8
    assert np.array_equal(read_back(packed, bits)[:columns], levels)


@pytest.mark.parametrize("bits", [4, 8])
def test_scales_and_zero_points_are_by_panels(bits):
    matrix, _ = weight(bits, "nk")
    scale, zero = pack_groups(matrix.scale, 16), pack_zeros([matrix], 16)
    assert np.array_equal(scale.transpose(0, 2, 1).reshape(-1, K // GROUP)[:N], matrix.scale)
    assert not scale.transpose(0, 2, 1).reshape(-1, K // GROUP)[N:].any()
    groups = unpacked(zero.transpose(0, 2, 1), bits).reshape(-1, K // GROUP)
    assert np.array_equal(groups[:N], matrix.zero)


def test_zero_points_of_half_the_range_are_left_out():
    matrix, _ = weight(4, "nk")
    matrix.zero[...] = 8
    assert pack_zeros([matrix], 16) is None


def test_numbers_are_levels_less_zero_points_times_scales():
    matrix, levels = weight(4, "nk")
    wide = [np.repeat(array, GROUP, 1).astype(np.float32) for array in (matrix.zero, matrix.scale)]
    assert np.allclose(matrix.numbers(), ((levels - wide[0]) * wide[1]).T)
