"""Resident weights of a device, and the time that fetching the others takes."""

import numpy as np
import pytest

from autotune.graph.lanes import Lane, cpu_lane
from autotune.graph.placement import Link
from autotune.graph.steps import Operand, Step, Steps
from autotune.graph.streaming import (
    Streaming,
    choose_resident,
    resident_s,
    shares_of_calls,
    streamed,
    streaming_s,
)

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
    streaming_steps = streamed(steps, choose_resident(steps, 128), LANES)
    copies = [n for n, group in enumerate(streaming_steps.groups) if group.lane == 1]
    readers = [n + 1 for n in copies]
    assert [streaming_steps.groups[n].waits for n in copies] == [(), (), (readers[0],), (readers[1],)]
    assert [streaming_steps.groups[n].waits for n in readers] == [(n,) for n in copies]
    assert sum(group.calls for group in streaming_steps.groups) == len(streaming_steps.calls) == 5 + 4
    places = [call.operands[-1].index for call in streaming_steps.calls if call.symbol == "@copy"]
    assert places == [384, 448, 384, 448]
    assert streaming_steps.arena_bytes == 384 + 128


def test_kernels_wait_for_copies_that_are_slower_and_not_for_faster_ones():
    steps = chain(64, 64, 64, 64)
    none = Streaming(frozenset(), 64, 128)
    # All copies but the first are made while kernels run.
    assert streaming_s(steps, none, [1.0] * 4, Link(0.5)) == pytest.approx(0.5 + 4.0)
    # Kernels are done long before the next copy is there.
    assert streaming_s(steps, none, [1.0] * 4, Link(2.0)) == pytest.approx(4 * 2.0 + 1.0)
    assert streaming_s(steps, Streaming(frozenset(range(4)), 0, 256), [1.0] * 4, Link(2.0)) == 4.0


def simulated_s(steps, kernel_s, link):
    """Seconds of ``steps`` with copies, group by group as its lanes run them: what its waits allow, not the formula."""
    free, ends, calls, kernels = [0.0, 0.0], [], iter(steps.calls), iter(kernel_s)
    for group in steps.groups:
        now = max([free[group.lane], *(ends[other] for other in group.waits)])
        for _ in range(group.calls):
            step = next(calls)
            copies = step.symbol == "@copy"
            now += link.seconds(steps.weights[step.operands[0].index].nbytes) if copies else next(kernels)
        free[group.lane] = now
        ends.append(now)
    return max(ends)


@pytest.mark.parametrize("seed", range(20))
def test_the_prediction_is_what_the_lanes_do(seed):
    rng = np.random.default_rng(seed)
    steps = chain(*(int(size) for size in rng.choice([0, 64, 128, 512], 12)))
    total = sum(weight.nbytes for weight in steps.weights)
    kernel_s = list(rng.uniform(0.0, 2.0, 12))
    for share in (0.5, 0.7, 0.9):
        streaming = choose_resident(steps, int(share * total))
        if streaming is None or not streaming.buffer_bytes:
            continue
        assert streaming.bytes <= share * total
        streaming_steps = streamed(steps, streaming, LANES)
        copied = [
            streaming_steps.weights[call.operands[0].index].nbytes
            for call in streaming_steps.calls
            if call.symbol == "@copy"
        ]
        assert sum(copied) == streaming.streamed_bytes(steps)
        link = Link(float(rng.uniform(0.0, 0.2)), float(rng.uniform(50.0, 500.0)))
        assert streaming_s(steps, streaming, kernel_s, link) == pytest.approx(
            simulated_s(streaming_steps, kernel_s, link)
        )


def test_seconds_with_all_weights_resident_are_found_from_a_streamed_run():
    steps, link = chain(64, 64, 64, 64), Link(0.1)
    streaming = Streaming(frozenset(), 64, 128)
    shares = shares_of_calls(steps)
    assert sum(shares) == pytest.approx(1.0)
    for seconds in (1.0, 4.0):  # kernels take longer than copies
        taken = streaming_s(steps, streaming, [seconds * share for share in shares], link)
        assert resident_s(steps, streaming, taken, link) == pytest.approx(seconds)
    copies_only = streaming_s(steps, streaming, [0.0] * 4, link)
    assert resident_s(steps, streaming, copies_only, link) <= copies_only
