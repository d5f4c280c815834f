"""How the memory of a device is dealt out."""

from types import SimpleNamespace

import numpy as np

from autotune.backends.device_interface import Room, weights_bytes


def part(*sizes, inner=0):
    weights = tuple(np.zeros(size, np.uint8) for size in sizes)
    return SimpleNamespace(weights=weights, steps=SimpleNamespace(arena_bytes=inner))


def test_weights_are_counted_on_their_boundaries():
    assert weights_bytes(part(1, 64, 65)) == 64 + 64 + 128


def test_all_weights_stay_where_they_fit():
    one, other = part(640, inner=100), part(1280, inner=28)
    room = Room.of(128, 2176, [one, other])
    assert (room.inner_bytes, room.weight_bytes) == (128, 1920)
    assert room.share(one, 10_000) == 640
    assert room.share(other, 10_000) == 1280


def test_what_is_left_is_dealt_out_by_size():
    one, other = part(640), part(1280)
    room = Room.of(40, 1000, [one, other])
    assert (room.share(one, 10_000), room.share(other, 10_000)) == (320, 640)
    assert room.share(one, 340) == 100  # the device has less than the limit
    assert Room.of(40, 30, [one]).share(one, 10_000) == 0
