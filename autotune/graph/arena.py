"""Where every activation lives: one arena, offsets chosen so that tensors alive together never overlap. Pure.

Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): largest first,
each at the lowest offset that is free during its whole life.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ALIGNMENT = 64

Clash = Callable[[int, int], bool]
"""Whether two tensors may be alive at the same time, by their numbers."""


@dataclass(frozen=True)
class Slice:
    """Where a tensor lies inside another: the parts of a concatenation are written in place."""

    parent: int
    offset: int


@dataclass(frozen=True)
class Life:
    """One tensor of a program that runs in one order.

    Attributes:
        size: bytes.
        first, last: steps that write it first and read it last.
    """

    size: int
    first: int
    last: int


def plan_memory(lives: Sequence[Life], slices: Mapping[int, Slice]) -> tuple[tuple[int, ...], int]:
    """Byte offset of every tensor, and the arena's size.

    Args:
        lives: the tensors.
        slices: tensor → its place in another; chains are followed, cycles are not allowed.

    Returns:
        (n_tensors,) offsets, multiples of ALIGNMENT where they are not slices, and the bytes that hold them all.
    """
    spans: dict[int, tuple[int, int]] = {}
    for index, life in enumerate(lives):
        root, _ = root_of(index, slices)
        first, last = spans.get(root, (life.first, life.last))
        spans[root] = (min(first, life.first), max(last, life.last))

    def clash(one: int, other: int) -> bool:
        return spans[one][0] <= spans[other][1] and spans[other][0] <= spans[one][1]

    return place_tensors([life.size for life in lives], slices, clash)


def place_tensors(sizes: Sequence[int], slices: Mapping[int, Slice], clash: Clash) -> tuple[tuple[int, ...], int]:
    """As ``plan_memory``, for any rule of which tensors are alive together.

    Args:
        sizes: (n_tensors,) bytes.
        clash: asked for tensors that are not slices, each standing for everything inside it.
    """
    roots = [root_of(index, slices) for index in range(len(sizes))]
    placed: dict[int, int] = {}
    for root in sorted({root for root, _ in roots}, key=lambda index: (-sizes[index], index)):
        busy = [(offset, offset + sizes[other]) for other, offset in placed.items() if clash(root, other)]
        placed[root] = _lowest_gap(sizes[root], sorted(busy))
    total = max((placed[root] + sizes[root] for root in placed), default=0)
    return tuple(placed[root] + inside for root, inside in roots), total


def root_of(index: int, slices: Mapping[int, Slice]) -> tuple[int, int]:
    """The tensor that holds ``index`` in the end, and the offset there."""
    inside = 0
    while index in slices:
        inside += slices[index].offset
        index = slices[index].parent
    return index, inside


def _lowest_gap(size: int, busy: Sequence[tuple[int, int]]) -> int:
    start = 0
    for low, high in busy:
        if start + size <= low:
            break
        start = max(start, -(-high // ALIGNMENT) * ALIGNMENT)
    return start
