"""Subgraphs that share a device's memory, and moves of subgraphs between lanes."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from autotune.artifact.plan import DeviceMemory
from autotune.backends.device_memory import CapacityError, DeviceCapacity, Held, aligned, moved_while_faster
from autotune.graph.placement import Link
from tests.autotune_tests.graph_tests.test_streaming import chain


def part(*sizes):
    steps = chain(*sizes)
    return SimpleNamespace(steps=steps, weights=steps.weights)


def test_subgraphs_get_room_by_their_weights_and_stream_the_rest():
    held = {"a": Held(part(*[64] * 8), 8.0), "b": Held(part(*[64] * 4), 4.0)}
    inner = sum(one.part.steps.arena_bytes for one in held.values())
    whole = 64 + inner + 12 * 64
    loaded = DeviceCapacity("sim:0", whole, Link(1e-3)).loaded(held, 64)
    assert loaded.memory == DeviceMemory("sim:0", whole, whole, 0)
    assert loaded.seconds == {"a": 8.0, "b": 4.0}
    short = DeviceCapacity("sim:0", whole - 3 * 64, Link(2.0)).loaded(held, 64)
    assert 0 < short.memory.streamed_bytes < 12 * 64
    assert short.memory.bytes <= whole - 3 * 64
    assert sum(short.seconds.values()) > 12.0
    with pytest.raises(CapacityError, match="subgraph 'a' does not fit into 1000 bytes of sim:0"):
        DeviceCapacity("sim:0", 1000, Link()).loaded(held, 64)
    unlimited = DeviceCapacity("sim:0", 0, Link()).loaded(held, 64)
    assert unlimited.memory == DeviceMemory("sim:0", 0, whole, 0)


def test_a_share_of_the_weights_has_a_price():
    held, capacity = Held(part(*[64] * 8), 8.0), DeviceCapacity("sim:0", 10_000, Link(0.5))
    assert capacity.at_share(held, 1.0) == 8.0
    seconds = [capacity.at_share(held, share) for share in (1.0, 0.75, 0.5, 0.25)]
    assert seconds == sorted(seconds)
    assert capacity.at_share(held, 0.1) is None


def test_sizes_are_aligned():
    assert [aligned(size) for size in (0, 1, 64, 65)] == [0, 64, 64, 128]


@pytest.mark.parametrize("seed", range(10))
def test_moves_end_where_no_single_one_saves_anything_and_never_worse_than_they_began(seed):
    rng = np.random.default_rng(seed)
    size, gain = rng.integers(1, 10, 8), rng.uniform(0.0, 1.0, 8)
    able = {n: (0, 1) for n in range(8) if n != 3}

    def seconds(lanes):
        there = [n for n, lane in enumerate(lanes) if lane]
        return math.inf if size[there].sum() > 25 else 10.0 - gain[there].sum()

    start = (0,) * 8
    settled = moved_while_faster(start, able, seconds)
    assert seconds(settled) < seconds(start)
    assert settled[3] == 0
    for n, allowed in able.items():
        assert all(seconds((*settled[:n], lane, *settled[n + 1 :])) >= seconds(settled) for lane in allowed)
    assert moved_while_faster((1,) * 8, able, lambda _: math.inf) == (1,) * 8
