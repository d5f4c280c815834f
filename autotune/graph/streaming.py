"""Weights that do not fit into a device's memory are fetched ahead of use into one of two buffers, in turn. Pure.

While a kernel reads one buffer, the next kernel's weights arrive in the other. Notation: c seconds of a kernel that
reads streamed weights, w seconds of copying its weights. Other kernels run at their own speed between them.

    there(j) = max( there(j − 1), end(j − 2) ) + w(j)
    end(j)   = max( end(j − 1) + what runs between, there(j) ) + c(j)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.graph.lanes import Lane
from autotune.graph.merge import COPY
from autotune.graph.placement import Link
from autotune.graph.steps import WHOLE, Group, Operand, Step, Steps
from autotune.host.dtypes import numpy_type
from autotune.host.pages import KERNEL_ALIGNMENT

BUFFERS = 2

BISECTIONS = 30
"""Halvings of an interval, to a billionth of it."""


@dataclass(frozen=True)
class Streaming:
    """Weights that stay in a device's memory.

    Attributes:
        resident: numbers of the weights that stay; the others are streamed.
        buffer_bytes: size of one of the two buffers: the most that one kernel reads of streamed weights.
        bytes: size of the resident weights and both buffers.
    """

    resident: frozenset[int]
    buffer_bytes: int
    bytes: int

    def fetched(self, step: Step) -> list[int]:
        """Return the weights that a call reads and that are streamed, each once."""
        return [weight for weight in _weights_of(step) if weight not in self.resident]

    def streamed_bytes(self, steps: Steps) -> int:
        """Return the bytes that a run fetches; a weight that two calls read is fetched twice."""
        return sum(steps.weights[weight].nbytes for step in steps.calls for weight in self.fetched(step))


def choose_resident(steps: Steps, budget_bytes: int) -> Streaming | None:
    """Return the choice that streams the fewest bytes; None if not even two buffers fit into ``budget_bytes``.

    For every possible buffer size, weights of kernels that need a larger buffer stay, then the largest that fit.
    """
    sizes = [_round_up(weight.nbytes) for weight in steps.weights]
    if sum(sizes) <= budget_bytes:
        return Streaming(frozenset(range(len(sizes))), 0, sum(sizes))
    reads = [_weights_of(step) for step in steps.calls]
    choices: list[tuple[int, Streaming]] = []
    for buffer in sorted({sum(sizes[w] for w in read) for read in reads if read}):
        kept = {w for read in reads if sum(sizes[w] for w in read) > buffer for w in read}
        left = budget_bytes - BUFFERS * buffer - sum(sizes[w] for w in kept)
        if left < 0:
            continue
        for weight in sorted(set(range(len(sizes))) - kept, key=lambda w: (-sizes[w], w)):
            if sizes[weight] <= left:
                kept.add(weight)
                left -= sizes[weight]
        streamed = sum(sizes[w] for read in reads for w in read if w not in kept)
        choices.append((streamed, Streaming(frozenset(kept), buffer, budget_bytes - left)))
    return min(choices, key=lambda pair: (pair[0], pair[1].bytes), default=(0, None))[1]


def streamed(steps: Steps, streaming: Streaming, lanes: tuple[Lane, Lane]) -> Steps:
    """Return ``steps``, of one lane, with copies of the weights that are not resident.

    Args:
        lanes: the lane that computes, and the one that copies.
    """
    if not streaming.buffer_bytes:
        return steps
    calls: list[Step] = []
    groups: list[Group] = []
    base = _round_up(steps.arena_bytes)
    readers: list[int] = []  # groups of the kernels that read streamed weights
    straight = 0  # calls since the last of those

    def close() -> None:
        nonlocal straight
        if straight:
            groups.append(Group(f"{WHOLE} {len(groups)}", 0, straight))
            straight = 0

    for step in steps.calls:
        fetched = streaming.fetched(step)
        if not fetched:
            calls.append(step)
            straight += 1
            continue
        close()
        offset = base + len(readers) % BUFFERS * _round_up(streaming.buffer_bytes)
        places: dict[int, int] = {}
        copies = []
        for weight in fetched:
            places[weight] = offset
            array = steps.weights[weight]
            source = Operand("weight", weight, array.shape, str(array.dtype))
            copies.append(Step(COPY, (source, replace(source, place="arena", index=offset))))
            offset += _round_up(array.nbytes)
        waits = (readers[-BUFFERS],) if len(readers) >= BUFFERS else ()
        groups.append(Group(f"weights {len(readers)}", 1, len(copies), waits))
        calls += copies
        groups.append(Group(f"{WHOLE} {len(groups)}", 0, 1, (len(groups) - 1,)))
        readers.append(len(groups) - 1)
        calls.append(replace(step, operands=tuple(_moved(operand, places) for operand in step.operands)))
    close()
    total = base + BUFFERS * _round_up(streaming.buffer_bytes)
    spaces = iter(steps.spaces)
    kept = tuple((0, 0) if call.symbol == COPY else next(spaces) for call in calls) if steps.spaces else ()
    return replace(steps, calls=tuple(calls), groups=tuple(groups), arena_bytes=total, lanes=lanes, spaces=kept)


def streaming_s(steps: Steps, streaming: Streaming, kernel_s: Sequence[float], link: Link) -> float:
    """Return the predicted seconds of a run; see the module's head.

    Args:
        kernel_s: seconds of each of ``steps.calls`` with all weights resident.
        link: from the host's memory to the device's.
    """
    now = there = 0.0
    ends: list[float] = []
    for step, seconds in zip(steps.calls, kernel_s, strict=True):
        fetched = streaming.fetched(step)
        if fetched:
            there = max(there, ends[-BUFFERS] if len(ends) >= BUFFERS else 0.0)
            there += sum(link.seconds(steps.weights[w].nbytes) for w in fetched)
            now = max(now, there)
        now += seconds
        if fetched:
            ends.append(now)
    return now


def shares_of_calls(steps: Steps) -> list[float]:
    """Return the share of a run that each call takes by the bytes that it touches, where only the whole was timed."""
    sizes = [
        sum(math.prod(one.shape) * numpy_type(one.dtype).itemsize for one in call.operands) for call in steps.calls
    ]
    return [size / (sum(sizes) or 1) for size in sizes]


def resident_s(steps: Steps, streaming: Streaming, seconds: float, link: Link) -> float:
    """Return the most that a run may take with all weights resident, of which ``seconds`` were timed while streaming.

    Inverse of ``streaming_s``, by bisection; where copies take longer than kernels any smaller value fits as well.
    """
    shares = shares_of_calls(steps)
    low, high = 0.0, seconds
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        fits = streaming_s(steps, streaming, [middle * share for share in shares], link) <= seconds
        low, high = (middle, high) if fits else (low, middle)
    return low


def _weights_of(step: Step) -> list[int]:
    """Return the weights that a call reads, each once."""
    return list(dict.fromkeys(operand.index for operand in step.operands if operand.place == "weight"))


def _moved(operand: Operand, places: Mapping[int, int]) -> Operand:
    streams = operand.place == "weight" and operand.index in places
    return replace(operand, place="arena", index=places[operand.index]) if streams else operand


def _round_up(size: int) -> int:
    return -(-size // KERNEL_ALIGNMENT) * KERNEL_ALIGNMENT
