"""Calls that one side of a choice needs are made only when that side is chosen.

An If whose condition is computed is imported as both branches and a kernel per result that chooses between them:

    a = f(x); b = g(x); y = choose(c, a, b)     →     if c: y = f(x)
                                                      if not c: y = g(x)

What nothing but one side reads is left out by the core when the other side is chosen. If both operands of a choice are
left out like this, they are written where the choice would put its result, and the choice vanishes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from autotune.graph.arena import Slice
from autotune.graph.flat import Flat, Guard, Source, Use

SIDES = {True: 1, False: 2}
"""Value of the condition → the choice's argument that it takes. The condition is argument 0."""


def guard_sides(flat: Flat, choices: Collection[str]) -> Flat:
    """Return ``flat`` with a guard on every call that only one side of a choice needs.

    Args:
        choices: symbols of kernels with the arguments condition, result if true, result if false.
    """
    chosen_by: dict[Source, list[int]] = {}
    for number, call in enumerate(flat.calls):
        if call.symbol in choices:
            chosen_by.setdefault(call.arguments[0].source, []).append(number)
    if not chosen_by:
        return flat
    sides = {
        (condition, when): _needed_only(flat, dict.fromkeys(numbers, SIDES[when]))
        for condition, numbers in chosen_by.items()
        for when in SIDES
    }
    guards: dict[int, Guard] = {}
    # A choice within a side comes after that side. Sets that overlap otherwise would let a call read what was left out.
    for (condition, when), needed in sorted(sides.items(), key=lambda item: -len(item[1])):
        is_late = condition.place == "arena" and condition.index >= min(needed, default=0)
        if not is_late and not needed & guards.keys():
            use = flat.calls[chosen_by[condition][0]].arguments[0]
            guards.update(dict.fromkeys(needed, Guard(use, when)))
    calls = tuple(replace(call, guard=guards.get(number)) for number, call in enumerate(flat.calls))
    guarded = replace(flat, calls=calls)
    return _in_place(guarded, [number for numbers in chosen_by.values() for number in numbers])


def _needed_only(flat: Flat, arguments: Mapping[int, int]) -> set[int]:
    """The calls whose results are read only to make one argument of choices.

    Args:
        arguments: number of a choice → number of its argument.
    """
    outputs = {use.source for use in flat.outputs}
    readers: dict[int, list[tuple[int, int]]] = {}
    for number, call in enumerate(flat.calls):
        for place, use in enumerate(call.arguments):
            if use.source.place == "arena":
                readers.setdefault(use.source.index, []).append((number, place))
    only: set[int] = set()
    for number in reversed(range(len(flat.calls))):
        reads = readers.get(number, ())
        is_output = Source("arena", number) in outputs
        if reads and not is_output and all(other in only or arguments.get(other) == place for other, place in reads):
            only.add(number)
    return only


def _in_place(flat: Flat, choices: Collection[int]) -> Flat:
    """Return ``flat`` without the choices whose operands can be written where the choice writes."""
    slices, removed = dict(flat.slices), set(flat.removed)
    for number in choices:
        condition, *operands = flat.calls[number].arguments
        guards = [Guard(condition, when) for when in SIDES]
        if all(_is_written_once(flat, use, guard, slices) for use, guard in zip(operands, guards, strict=True)):
            slices.update({use.source.index: Slice(number, 0) for use in operands})
            removed.add(number)
    return replace(flat, slices=slices, removed=frozenset(removed))


def _is_written_once(flat: Flat, use: Use, guard: Guard, slices: Mapping[int, Slice]) -> bool:
    """Return whether calls with this guard alone write ``use``, into memory that is not part of another tensor."""
    source = use.source
    if source.place != "arena" or source.index in slices:
        return False
    parts, wanted = [source.index], (guard.condition.source, guard.when)
    for number in parts:
        own = flat.calls[number].guard
        if own is None or (own.condition.source, own.when) != wanted:
            return False
        parts += [part for part, place in slices.items() if place.parent == number]
    return True
