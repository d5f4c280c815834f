"""Buffers of caches: whose they are, what is in use, and how much was copied."""

import numpy as np
import pytest

from autotune.interface import TensorSpec
from autotune.runtime.key_value_caches import KeyValueCaches
from schedules.vocabulary.errors import UsageError

SPECS = [TensorSpec(f"past.{kind}", (2, 3, 8, 16), "float32") for kind in ("key", "value")]


def test_buffers_of_the_session_are_aligned_zeros():
    caches = KeyValueCaches(SPECS)
    assert [buffer.shape for buffer in caches.buffers] == [(2, 3, 8, 16)] * 2
    assert all(buffer.ctypes.data % 64 == 0 and not buffer.any() for buffer in caches.buffers)
    assert (caches.capacity, caches.length, caches.nbytes) == (8, 0, 2 * 2 * 3 * 8 * 16 * 4)


def test_a_buffer_of_the_callers_is_used_as_it_is():
    own = KeyValueCaches(SPECS[:1]).buffers[0]
    assert KeyValueCaches(SPECS, {"past.key": own}).buffers[0] is own


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.zeros((2, 3, 9, 16), np.float32), "is 2x3x9x16 float32; it must be 2x3x8x16 float32"),
        (np.zeros((2, 3, 8, 16), np.float64), "float64; it must be"),
        (np.zeros((2, 3, 8, 32), np.float32)[..., ::2], "must be writeable, dense and aligned"),
    ],
)
def test_a_buffer_that_does_not_fit(wrong, said):
    with pytest.raises(UsageError, match=said):
        KeyValueCaches(SPECS, {"past.key": wrong})


def test_what_is_copied_is_counted():
    caches = KeyValueCaches(SPECS)
    pasts = [np.ones((2, 3, 5, 16), np.float32)] * 2
    caches.fill(pasts)
    presents = caches.presents(5)
    assert all(np.array_equal(a, b) for a, b in zip(presents, pasts, strict=True))
    assert caches.bytes_copied == 2 * sum(past.nbytes for past in pasts)


def test_rows_and_rewinding_share_memory():
    caches = KeyValueCaches(SPECS)
    caches.lengths[:] = (4, 6)
    row = caches.row(1)
    row.buffers[0][0, 0, 0] = 7
    row.lengths += 1
    assert caches.buffers[0][1, 0, 0, 0] == 7
    assert caches.lengths.tolist() == [4, 7]
    caches.rewind(5)
    assert caches.lengths.tolist() == [4, 5]
    with pytest.raises(UsageError, match="cannot rewind to position 9: 5 are in use"):
        caches.rewind(9)
