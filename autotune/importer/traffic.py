"""Sets of input shapes for the sizes that a model is called with, and what each of them is worth.

    [{"shapes": {"ids": [1, 40], "mask": [1, 40]}, "count": 118}, ...]

as ``session.sizes()`` returns and ``--sizes`` reads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from autotune.importer.onnx_model.shape_sets import MOST_SETS, Shape
from schedules.vocabulary.bounded import parsed_json
from schedules.vocabulary.errors import UsageError

Sizes = Mapping[str, Shape]
"""Input → shape of one call."""

Call = tuple[Shape, ...]
"""Shapes of all inputs, by their names in order."""

WORTH = 0.05
"""Least share of all elements that another set must save, for each is tuned and built. Heuristic, not measured."""


def read_traffic(path: Path) -> list[tuple[Sizes, int]]:
    """The calls in a file, as shapes and how many there were.

    Raises:
        UsageError: if the file cannot be read, or has another form.
    """
    try:
        items = parsed_json(path.read_text())
        calls: list[tuple[Sizes, int]] = [
            ({str(name): tuple(map(_size, shape)) for name, shape in item["shapes"].items()}, _size(item["count"]))
            for item in items
        ]
    except OSError as error:
        raise UsageError(f"--sizes {path}: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(
            f'--sizes {path}: not a list such as [{{"shapes": {{"data": [1, 40]}}, "count": 7}}]; write what '
            "session.sizes() returns"
        ) from error
    ranks = {tuple((name, len(shape)) for name, shape in sorted(sizes.items())) for sizes, _ in calls}
    if not ranks:
        raise UsageError(f"--sizes {path}: holds no calls; record some with session.sizes()")
    if len(ranks) != 1:
        raise UsageError(
            f"--sizes {path}: calls must name the same inputs, with as many axes; there are {len(ranks)} kinds"
        )
    return calls


def sets_of(traffic: Sequence[tuple[Sizes, int]], most: int = MOST_SETS) -> list[tuple[Sizes, float]]:
    """Sets that serve ``traffic`` with little padding, and the share of its work that each serves, in sum 1.

    A call is served by the least set that is as large along every axis. Where batches and other sizes differ, it may
    also be served in several calls of a set with a smaller batch, as sessions do. For sequences this is no slower: a
    MiniLM's 8 × 128 took 0.97 of the time in eight calls (24 rounds in turn, Zen 4). The largest of every size make the
    first set. Then comes, one after the other, the size that saves most padding. Sets that serve nothing are left out.

    Args:
        traffic: at least one call.
    """
    names = sorted(traffic[0][0])
    counts: dict[Call, int] = {}
    for sizes, count in traffic:
        call = tuple(tuple(sizes[name]) for name in names)
        counts[call] = counts.get(call, 0) + count
    largest = tuple(tuple(max(axis) for axis in zip(*shapes, strict=True)) for shapes in zip(*counts, strict=True))
    splits = len({_of_batch(call, 1) for call in counts}) > 1 and all(map(_batch, counts))
    candidates = {*counts, *(_of_batch(call, 1) for call in counts if splits)}
    chosen = [largest]
    computed = _computed(counts, chosen, splits)
    while len(chosen) < most:
        costs = {call: _computed(counts, [*chosen, call], splits) for call in sorted(candidates - {*chosen})}
        best = min(costs, key=costs.__getitem__, default=None)
        if best is None or computed - costs[best] < WORTH * computed:
            break
        chosen.append(best)
        computed = costs[best]
    served = dict.fromkeys(chosen, 0.0)
    for call, count in counts.items():
        cost, server = min((_cost(call, shapes, splits), shapes) for shapes in chosen)
        served[server] += count * cost
    return [
        (dict(zip(names, shapes, strict=True)), served[shapes] / computed)
        for shapes in sorted(chosen, key=_elements)
        if served[shapes]
    ]


def _batch(call: Call) -> int:
    """The first size of all inputs; 0 where they differ, or there is none."""
    firsts = {shape[0] if shape else 0 for shape in call}
    return firsts.pop() if len(firsts) == 1 else 0


def _of_batch(call: Call, batch: int) -> Call:
    """``call`` with another first size of all inputs."""
    return tuple((batch, *shape[1:]) if shape else shape for shape in call)


def _computed(counts: Mapping[Call, int], chosen: Sequence[Call], splits: bool) -> float:
    """Elements of all calls, as these sets serve them."""
    return sum(count * min(_cost(call, shapes, splits) for shapes in chosen) for call, count in counts.items())


def _cost(call: Call, shapes: Call, splits: bool) -> float:
    """Elements that a call takes with a set of shapes; infinite if it cannot serve it."""
    pieces = 1
    if splits and _batch(call) > _batch(shapes):
        pieces = math.ceil(_batch(call) / _batch(shapes))
        call = _of_batch(call, _batch(shapes))
    pairs = zip(itertools.chain(*call), itertools.chain(*shapes), strict=True)
    return pieces * _elements(shapes) if all(size <= room for size, room in pairs) else math.inf


def _elements(shapes: Call) -> int:
    return sum(map(math.prod, shapes))


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{value!r} is no size")
    return value
