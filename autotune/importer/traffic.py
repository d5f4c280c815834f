"""Sets of input shapes for the sizes that a model is called with, and what each of them is worth.

    [{"shapes": {"ids": [1, 40], "mask": [1, 40]}, "count": 118}, ...]

as ``session.sizes()`` returns and ``--sizes`` reads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.importer.onnx_model.inline_weights import model_without_weights
from autotune.importer.onnx_model.open_axes import constant_extents, mixes_positions, quantises_whole_tensors
from autotune.importer.onnx_model.shape_sets import MOST_SETS, Shape
from schedules.vocabulary.bounded import parsed_json
from schedules.vocabulary.errors import UsageError

Sizes = Mapping[str, Shape]
"""Input → shape of one call."""

Call = tuple[Shape, ...]
"""Shapes of all inputs, by their names in order."""

WORTH = 0.01
"""Least share of all work that another set must save, for each is tuned and built. Measured with 0.05, 0.02 and 0.01:
docs/lab/2026-11-29-any-batch.md."""

CALL_POSITIONS = 32
"""Positions of sequences that take as long as a call takes besides: it reads all weights. Measured of a MiniLM on two
threads of a Zen 5: 1.3 ms per call, 0.04 ms per position (docs/lab/2026-11-29-any-batch.md)."""

MOST_SIZE = 1 << 40
"""Largest size or count in a file: far more than any tensor or server has."""

STEP = 32
"""Positions of a set for sequences are a multiple of this, which fills the tiles of attention."""

JOB_POSITIONS = 8
"""Positions that are left out together: kernels leave out jobs of so many rows (``schedules/lower.py``)."""

CLEARED_POSITIONS, BYTE_CLEARED_POSITIONS = 0.08, 0.25
"""Time of a position that a set has behind a sequence, in positions that count: keys and values are cleared there.
Measured of a MiniLM on a Zen 5 in fp32; products of bytes take a third (docs/lab/2026-11-29-two-sizes.md)."""

LENGTH_RANK = 3
"""Most axes of an input whose second size is a length: (batch, length), (batch, length, features)."""

ATTENTION_POSITIONS, BYTE_ATTENTION_POSITIONS = 1400, 440
"""Length of a set at which attention takes as long as all else, in fp32 and beside products of bytes. Its jobs are
whole heads, so queries behind a sequence are computed. Measured of a MiniLM on a Zen 5: 4.5 % of 8 x 64 and 11 % of
4 x 192 in fp32, 13 % of 8 x 64 in bytes (docs/lab/2026-11-29-two-sizes.md)."""

ELSEWHERE = 2.0
"""Time of ONNX Runtime by that of kernels for the very size: it serves calls that no set does. Measured there too."""

MOST_POSITIONS = 8192
"""Positions of a set of calls that are not cut: larger ones take minutes to build and verify. Heuristic."""

ENOUGH_POSITIONS = 512
"""Positions of a set, as many rows as that takes, from which on more rows would save less than 6 %."""


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


def sets_for(model: Path, sizes: Path) -> list[tuple[Sizes, float]]:
    """``sets_of`` the calls of ``model`` in the file ``sizes``.

    Raises:
        UsageError: as ``read_traffic``.
    """
    light = model_without_weights(model)
    whole, mixed = quantises_whole_tensors(light), mixes_positions(light)
    return sets_of(read_traffic(sizes), whole=whole, mixed=mixed, limits=constant_extents(light))


def sets_of(
    traffic: Sequence[tuple[Sizes, int]],
    most: int = MOST_SETS,
    whole: bool = False,
    mixed: bool = False,
    limits: Collection[int] = (),
) -> list[tuple[Sizes, float]]:
    """Return sets that serve ``traffic`` with little padding, and the share of the work that each serves, in sum 1.

    A call is served by the least set that is as large along every axis. Where batches and other sizes differ, it may
    also be served in several calls of a set with a smaller batch. Rows behind its own are left out, and positions
    behind those of its sequences, as sessions do.
    The largest of every size make the first set. Then comes, one after the other, the size that saves most. Sets that
    serve nothing are left out.

    Args:
        traffic: at least one call.
        whole: whether no call can be served in several. Those that fit into no set run on ONNX Runtime.
        mixed: whether positions behind the end of a sequence are computed as well.
        limits: extents of the model's constants. The longest sequence is rounded up where none of them is between, for
            else it may be all that a table of positions has.
    """
    names = sorted(traffic[0][0])
    calls: dict[Call, int] = {}
    for sizes, count in traffic:
        call = tuple(tuple(sizes[name]) for name in names)
        calls[call] = calls.get(call, 0) + count
    work, counts = _Work.of([*calls], whole, mixed, limits), np.array([*calls.values()], np.float64)
    costs = {shapes: work.of_calls(shapes) for shapes in sorted({*map(work.shapes_for, calls)})}
    elsewhere = work.elsewhere()

    def total(least: NDArray[np.float64]) -> float:
        return float(counts @ np.where(np.isfinite(least), least, elsewhere))

    largest = work.shapes_for(_largest(calls))
    chosen = [] if np.isfinite(elsewhere).all() else [largest]
    least = np.minimum.reduce([np.full(len(calls), math.inf), *map(work.of_calls, chosen)])
    while costs and len(chosen) < most:
        totals = {shapes: total(np.minimum(least, own)) for shapes, own in costs.items()}
        best = min(totals, key=totals.__getitem__)
        if chosen and total(least) - totals[best] < WORTH * total(least):
            break
        chosen.append(best)
        least = np.minimum(least, costs[best])
    ordered = sorted(chosen)
    servers = np.argmin([work.of_calls(shapes) for shapes in ordered], axis=0)
    served = np.bincount(servers, counts * np.where(np.isfinite(least), least, 0), len(ordered))
    share = {shapes: float(own) for shapes, own in zip(ordered, served / served.sum(), strict=True)}
    return [
        (dict(zip(names, shapes, strict=True)), share[shapes])
        for shapes in sorted(chosen, key=_elements)
        if share[shapes]
    ]


@dataclass(frozen=True)
class _Work:
    """The work that calls of one model take.

    Attributes:
        sizes: (n, k) all sizes of each of n different calls; the batch counts as 1 where that is served in pieces.
        batches: (n,) of each.
        batch: the largest; 0 if calls are not served in several.
        varying: input and axis of the sizes besides the batch in which calls differ.
        lengths: (n,) of each, if calls are of sequences, where a length is all that these sizes are; else empty.
        most: length of the longest set for these.
        row_elements: elements of a row and position of all inputs.
        whole: whether no call can be served in several.
        mixed: whether positions behind the end of a sequence are computed as well.
    """

    sizes: NDArray[np.int64]
    batches: NDArray[np.int64]
    batch: int
    varying: frozenset[tuple[int, int]] = frozenset()
    lengths: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    most: int = 0
    row_elements: int = 1
    whole: bool = False
    mixed: bool = False

    @classmethod
    def of(cls, calls: Sequence[Call], whole: bool, mixed: bool, limits: Collection[int]) -> _Work:
        """Find out what different ``calls`` have in common."""
        rows = {_of_batch(call, 1) for call in calls}
        batches = np.array([*map(_batch, calls)])
        if len(rows) == 1 or not all(batches):
            return cls(np.array([*map(_sizes, calls)]), batches, 0)
        one = next(iter(rows))
        places = [(number, axis) for number, shape in enumerate(one) for axis in range(len(shape))]
        varying = frozenset(place for place in places if len({row[place[0]][place[1]] for row in rows}) > 1)
        lengths = [{row[number][axis] for number, axis in varying} for row in rows]
        is_sequence = all(len(own) == 1 for own in lengths) and all(
            axis == 1 and len(one[number]) <= LENGTH_RANK for number, axis in varying
        )
        if whole and not is_sequence:
            return cls(np.array([*map(_sizes, calls)]), batches, 0)
        single = [_of_batch(call, 1) for call in calls]
        number, axis = min(varying)
        own = np.array([call[number][axis] for call in calls] if is_sequence else [], np.int64)
        longest, elements = int(own.max(initial=0)), _elements(_resized(one, varying, 1))
        rounded = -(-longest // STEP) * STEP
        most = longest if not limits or any(longest <= extent < rounded for extent in limits) else rounded
        sizes = np.array([*map(_sizes, single)])
        return cls(sizes, batches, int(max(batches)), varying, own, most, elements, whole, mixed)

    def shapes_for(self, call: Call) -> Call:
        """The set of shapes for calls as long as ``call``."""
        if not self.batch:
            return call
        if not self.lengths.size:  # an image or a signal of one row is work enough
            return _of_batch(call, 1)
        number, axis = min(self.varying)
        length = -(-call[number][axis] // STEP) * STEP
        call = _resized(call, self.varying, min(length, self.most))
        positions = _elements(_of_batch(call, 1)) / self.row_elements
        if self.whole:
            rows = 1 << math.ceil(math.log2(_batch(call)))
            return _of_batch(call, max(1, min(rows, self.batch, int(MOST_POSITIONS / positions))))
        rows = 1 << math.ceil(math.log2(max(1.0, ENOUGH_POSITIONS / positions)))
        # Rows that no call of these lengths has may cost time: not every kernel leaves them out.
        served = int(self.batches[self._fitting(_of_batch(call, 1))].max())
        return _of_batch(call, min(served, rows))

    def of_calls(self, shapes: Call) -> NDArray[np.float64]:
        """(n,) elements that the calls take with a set of shapes; infinite where it cannot serve one."""
        if not self.batch:
            return np.where(self._fitting(shapes), float(_elements(shapes)), math.inf)
        row, pieces = _of_batch(shapes, 1), -(-self.batches // _batch(shapes))
        elements = np.full(len(self.batches), float(_elements(row)))
        if self.lengths.size:
            number, axis = min(self.varying)
            elements = self._of_positions(np.full(len(self.batches), shapes[number][axis]))
        fits = self._fitting(row) & (pieces == 1 if self.whole else True)
        return np.where(fits, self._per_call(pieces) + self.batches * elements, math.inf)

    def elsewhere(self) -> NDArray[np.float64]:
        """(n,) elements that stand for the time of the calls in ONNX Runtime; infinite if sets have to serve all."""
        if not (self.whole and self.batch):
            return np.full(len(self.batches), math.inf)
        return ELSEWHERE * (
            self._per_call(np.ones(len(self.batches))) + self.batches * self._of_positions(self.lengths)
        )

    def _per_call(self, calls: NDArray[Any]) -> NDArray[np.float64]:
        return CALL_POSITIONS * self.row_elements * calls.astype(np.float64)

    def _of_positions(self, room: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) elements that stand for one row of each call in sequences of ``room`` positions."""
        jobs = -(-self.lengths // JOB_POSITIONS) * JOB_POSITIONS
        computed = room if self.mixed else np.minimum(jobs, room)
        attention = room / (BYTE_ATTENTION_POSITIONS if self.whole else ATTENTION_POSITIONS)
        cleared = (BYTE_CLEARED_POSITIONS if self.whole else CLEARED_POSITIONS) * (room - computed)
        return np.asarray(self.row_elements * (computed * (1 + attention) + cleared))

    def _fitting(self, shapes: Call) -> NDArray[np.bool_]:
        """(n,) whether ``shapes`` are as large as a call along every axis."""
        return np.asarray((self.sizes <= np.array(_sizes(shapes))).all(axis=1))


def _largest(calls: Iterable[Call]) -> Call:
    """The largest of every size."""
    return tuple(tuple(map(max, zip(*shapes, strict=True))) for shapes in zip(*calls, strict=True))


def _batch(call: Call) -> int:
    """The first size of all inputs; 0 where they differ, or there is none."""
    firsts = {shape[0] if shape else 0 for shape in call}
    return firsts.pop() if len(firsts) == 1 else 0


def _of_batch(call: Call, batch: int) -> Call:
    """``call`` with another first size of all inputs."""
    return tuple((batch, *shape[1:]) if shape else shape for shape in call)


def _resized(call: Call, places: Collection[tuple[int, int]], size: int) -> Call:
    """``call`` with another size at each of ``places``, an input and an axis."""
    return tuple(
        tuple(size if (number, axis) in places else own for axis, own in enumerate(shape))
        for number, shape in enumerate(call)
    )


def _sizes(call: Call) -> list[int]:
    return list(itertools.chain(*call))


def _elements(shapes: Call) -> int:
    return sum(map(math.prod, shapes))


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_SIZE:
        raise ValueError(f"{value!r} is no size")
    return value
