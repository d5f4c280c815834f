"""Which weights stay on a device, when the others are fetched, and what that takes."""

import numpy as np
import pytest

from autotune.graph.lanes import Lane, cpu_lane
from autotune.graph.placement import Link
from autotune.graph.steps import Operand, Step, Steps
from autotune.graph.streaming import Streaming, choose_resident, streamed, streaming_s

LANES = (cpu_lane(0, 1), Lane("sim:0 in", 1, 1, "sim:0", copies=True))


def chain(*sizes):
    """Calls in a row; each reads the one before and a weight of so many bytes, none for 0."""
    weights, calls = [], []
    for number, size in enumerate(sizes):
        operands = [Operand("arena", 64 * number, (8,), "float64")]
        if size:
            operands.append(Operand("weight", len(weights), (size,), "uint8"))
            weights.append(np.zeros(size, np.uint8))
        calls.append(Step("mix", (*operands, Operand("arena", 64 * number + 64, (8,), "float64"))))
    return Steps(tuple(calls), (calls[-1].operands[-1],), 64 * len(sizes) + 64, tuple(weights))


def test_all_weights_stay_where_they_fit():
    assert choose_resident(chain(64, 128), 192) == Streaming(frozenset({0, 1}), 0, 192)


def test_fewest_bytes_are_streamed():
    steps = chain(256, 256, 256, 256, 64)
    # Two buffers of 256 and one of the large weights, and the small one, in 832 bytes.
    assert choose_resident(steps, 832) == Streaming(frozenset({0, 4}), 256, 832)
    assert choose_resident(steps, 511) is None


def test_a_weight_too_large_for_a_buffer_stays():
    assert choose_resident(chain(640, 64, 64, 64), 640 + 128).resident == {0}


def test_a_buffer_is_written_when_its_reader_is_done_and_read_when_it_is_full():
    steps = chain(64, 64, 0, 64, 64)
    made = streamed(steps, choose_resident(steps, 128), LANES)
    copies = [n for n, group in enumerate(made.groups) if group.lane == 1]
    readers = [n + 1 for n in copies]
    assert [made.groups[n].waits for n in copies] == [(), (), (readers[0],), (readers[1],)]
    assert [made.groups[n].waits for n in readers] == [(n,) for n in copies]
    assert sum(group.calls for group in made.groups) == len(made.calls) == 5 + 4
    places = [call.operands[-1].index for call in made.calls if call.symbol == "@copy"]
    assert places == [384, 448, 384, 448]
    assert made.arena_bytes == 384 + 128


def test_kernels_wait_for_copies_that_are_slower_and_not_for_faster_ones():
    steps = chain(64, 64, 64, 64)
    none = Streaming(frozenset(), 64, 128)
    # All copies but the first are made while kernels run.
    assert streaming_s(steps, none, [1.0] * 4, Link(0.5)) == pytest.approx(0.5 + 4.0)
    # Kernels are done long before the next copy is there.
    assert streaming_s(steps, none, [1.0] * 4, Link(2.0)) == pytest.approx(4 * 2.0 + 1.0)
    assert streaming_s(steps, Streaming(frozenset(range(4)), 0, 256), [1.0] * 4, Link(2.0)) == 4.0
