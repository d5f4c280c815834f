"""A flat program as the numbers that the core reads (``core.h``). Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.graph.lanes import Lane
from autotune.graph.steps import MOST_STEPS, WHOLE, Group, LiveSizes, Operand, Step, Steps

PLACES = {"arena": 0, "input": 1, "weight": 2}

CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
"""NumPy's kind of a type → DLPack's code. Every other kind is a float of fewer bits, bfloat16."""
BFLOAT = 4

MORE_WORDS = 4
"""Added to the number of open sizes where more follows than 0.5.0 writes."""

NO_CHANGE = (1, 0, 1)
"""A step of ``Growth`` that leaves every size as it is."""

ALL_THREADS = Lane("cpu", 0, 0)
"""The lane of a program that was not placed: all threads that there are."""


def lanes_of(steps: Steps) -> tuple[Lane, ...]:
    """Return the lanes that the groups of ``groups_of`` run on."""
    return steps.lanes or (ALL_THREADS,)


def groups_of(steps: Steps) -> tuple[Group, ...]:
    """The groups of calls; one of all calls where the program is not cut."""
    return steps.groups or (Group(WHOLE, 0, len(steps.calls)),)


def host_operands(step: Step) -> tuple[Operand, ...]:
    """Those of a call's operands that lie in the host's memory, which is what the core knows of them."""
    return tuple(operand for operand in step.operands if operand.place in PLACES)


def nbytes(operand: Operand) -> int:
    """Size of a tensor."""
    return math.prod(operand.shape) * np.dtype(operand.dtype).itemsize


def program_words(
    steps: Steps,
    input_bytes: Sequence[int],
    live: LiveSizes | None = None,
    many_sizes: bool = True,
    has_more: bool = True,
) -> NDArray[np.int64]:
    """The words of ``steps``; kernels are known by the number of the call that makes them.

    Args:
        input_bytes: sizes of the model's inputs that have elements.
        live: which jobs may be left out; None if all of them always run.
        many_sizes: whether the core knows several open sizes; those in artifacts of 0.4.0 and older know one.
        has_more: whether it knows conditions and growths; those of 0.5.0 and older make every call.
    """
    lanes = lanes_of(steps)
    words = [steps.arena_bytes, len(input_bytes), *input_bytes, len(steps.outputs)]
    for output in steps.outputs:
        words += [PLACES[output.place], output.index, nbytes(output)]
    groups = groups_of(steps)
    words.append(len(groups))
    number = 0
    for group in groups:
        lane = lanes[group.lane]
        words += [lane.first, lane.threads, len(group.waits), *group.waits, group.calls]
        for step in steps.calls[number : number + group.calls]:
            here = host_operands(step)
            words += [number, len(here)]
            for operand in here:
                words += _operand(operand)
            number += 1
    for space in steps.spaces or [(0, 0)] * number:
        words += space
    sizes = () if live is None else live.sizes
    if many_sizes or not sizes:
        words.append(len(sizes) + MORE_WORDS * has_more)
    for size in sizes:
        words.append(size.rows)
        for jobs in size.calls:
            words += [jobs.count, jobs.inner, jobs.groups, jobs.rows, *([jobs.outer] * many_sizes), jobs.row_bytes]
    conditions = {place: step.condition for place, step in enumerate(steps.calls) if step.condition is not None}
    words.append(len(conditions))
    for place, condition in conditions.items():
        words += [place, int(condition.when), *_operand(condition.operand)]
    if not has_more:  # cores between 0.5.0 and growths read conditions without being told of them
        return np.array(words, np.int64)
    others = [
        (place, number, jobs)
        for number, size in enumerate(sizes)
        for place, jobs in enumerate(size.calls)
        if jobs.growth is not None or jobs.loop is not None
    ]
    words.append(len(others))
    for place, number, jobs in others:
        changes = (*(() if jobs.growth is None else jobs.growth.steps), NO_CHANGE, NO_CHANGE)[:MOST_STEPS]
        words += [place, number, jobs.loop or 0, *(word for step in changes for word in step)]
    return np.array(words, np.int64)


def _operand(operand: Operand) -> list[int]:
    dtype = np.dtype(operand.dtype)
    code = CODES.get(dtype.kind, BFLOAT)
    return [PLACES[operand.place], operand.index, code, 8 * dtype.itemsize, len(operand.shape), *operand.shape]
