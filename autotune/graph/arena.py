"""Byte offsets of all activations in one arena: tensors that are alive together never overlap. Pure.

Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): largest first,
each at the lowest offset that is free while the tensor is alive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.host.pages import KERNEL_ALIGNMENT

Clash = Callable[[int, int], bool]
"""Whether two tensors may be alive at the same time, by their numbers."""


@dataclass(frozen=True)
class Slice:
    """The place of a tensor inside another, in bytes: the parts of a concatenation are written in place."""

    parent: int
    offset: int


def place_tensors(sizes: Sequence[int], slices: Mapping[int, Slice], clash: Clash) -> tuple[tuple[int, ...], int]:
    """Byte offset of every tensor, and the bytes that hold them all.

    Args:
        sizes: (n_tensors,) bytes.
        slices: tensor → its place in another; chains are followed, cycles are not allowed.
        clash: called with tensors that are not slices; each stands for all tensors inside it too.

    Returns:
        (n_tensors,) offsets, multiples of ``KERNEL_ALIGNMENT`` for tensors that are not slices, and the arena's size.
    """
    roots = [root_of(index, slices) for index in range(len(sizes))]
    placed: dict[int, int] = {}
    for root in sorted({root for root, _ in roots}, key=lambda index: (-sizes[index], index)):
        busy = [(offset, offset + sizes[other]) for other, offset in placed.items() if clash(root, other)]
        placed[root] = _lowest_gap(sizes[root], sorted(busy))
    total = max((placed[root] + sizes[root] for root in placed), default=0)
    return tuple(placed[root] + inside for root, inside in roots), total


def root_of(index: int, slices: Mapping[int, Slice]) -> tuple[int, int]:
    """The tensor that holds ``index`` and is no slice itself, and the offset of ``index`` in it."""
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
        start = max(start, -(-high // KERNEL_ALIGNMENT) * KERNEL_ALIGNMENT)
    return start
