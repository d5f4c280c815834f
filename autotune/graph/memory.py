"""Where every activation lives: one arena, offsets chosen so that tensors alive together never overlap. Pure.

Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): largest first,
each at the lowest offset that is free during its whole life.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True)
class Slice:
    """Where a tensor lies inside another: the parts of a concatenation are written in place."""

    parent: int
    offset: int


@dataclass(frozen=True)
class Life:
    """One tensor.

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
    roots = [_root(index, slices) for index in range(len(lives))]
    spans: dict[int, tuple[int, int]] = {}
    for (root, _), life in zip(roots, lives, strict=True):
        first, last = spans.get(root, (life.first, life.last))
        spans[root] = (min(first, life.first), max(last, life.last))
    placed: dict[int, int] = {}
    for root in sorted(spans, key=lambda index: (-lives[index].size, index)):
        placed[root] = _lowest_gap(root, lives, spans, placed)
    total = max((placed[root] + lives[root].size for root in placed), default=0)
    return tuple(placed[root] + inside for root, inside in roots), total


def _root(index: int, slices: Mapping[int, Slice]) -> tuple[int, int]:
    """The tensor that holds ``index`` in the end, and the offset there."""
    inside = 0
    while index in slices:
        inside += slices[index].offset
        index = slices[index].parent
    return index, inside


def _lowest_gap(
    root: int, lives: Sequence[Life], spans: Mapping[int, tuple[int, int]], placed: Mapping[int, int]
) -> int:
    first, last = spans[root]
    busy = sorted(
        (offset, offset + lives[other].size)
        for other, offset in placed.items()
        if spans[other][0] <= last and first <= spans[other][1]
    )
    start = 0
    for low, high in busy:
        if start + lives[root].size <= low:
            break
        start = max(start, -(-high // ALIGNMENT) * ALIGNMENT)
    return start
