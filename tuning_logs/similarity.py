"""Near hits: records of other tasks that are good first guesses and training data for this one.

A near hit shares the template and its version with the task at hand, its shapes are similar and its machine is
compatible. It is never a result: whatever is taken from it is measured before it is believed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from schedules.target import Target
from tuning_logs.compatibility import incompatibility, remoteness
from tuning_logs.record import RecordKey, TuningRecord
from tuning_logs.sql_store import TuningLog

FARTHEST = 16.0
"""Doublings between shapes beyond which tasks are not alike. Heuristic: 3 is half the channels of a convolution
everywhere, 16 is the way from ResNet-50's first stage to its last."""

OTHER_COMPILER = 1.0
"""Distance of another TVM: most of what is fast stays fast."""


@dataclass(frozen=True)
class Signature:
    """The features that tasks of one template are compared by.

    Attributes:
        shapes: of every parameter in order; the last is the output.
        dtypes: one per shape.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]


@dataclass(frozen=True)
class Neighbour:
    """One key whose records are near.

    Attributes:
        key: whose.
        distance: 0 is the same shapes on the same machine; in doublings, see ``shape_distance`` and ``remoteness``.
        why: what differs, in words.
        records: its configs' newest successful records, fastest first.
    """

    key: RecordKey
    distance: float
    why: str
    records: tuple[TuningRecord, ...]


@dataclass(frozen=True)
class Nearness:
    """The log's records near a task besides its own: nearest first.

    Attributes:
        refused: of every key of the same template whose records are not used, the field that differs.
    """

    used: tuple[Neighbour, ...] = ()
    refused: tuple[str, ...] = ()

    def told(self) -> str:
        """One clause for people."""
        parts = []
        if self.used:
            nearest = self.used[0]
            parts.append(f"{_tasks(len(self.used))} near enough to learn from, the nearest {nearest.key.task}")
            parts[-1] += f" ({nearest.why})" if nearest.why else ""
        if self.refused:
            reasons = sorted(set(self.refused))
            more = f" and {len(reasons) - 2} more reasons" if len(reasons) > 2 else ""
            parts.append(f"{_tasks(len(self.refused))} not used: {'; '.join(reasons[:2])}{more}")
        return "; ".join(parts)


def _tasks(count: int) -> str:
    return "1 other task is" if count == 1 else f"{count} other tasks are"


class Neighbourhood:
    """A log as it is now, asked for the near hits of one task after another.

    Args:
        log: where to look.
        signature_of: task key → its signature, or None where its program is unknown; asked once per task.
        targets: descriptions by fingerprint; None takes those of the log.
        most_programs: most tasks whose signature is asked for, those with most records first: reading a program takes
            milliseconds, and a team's log may hold thousands.
        per_task: most records given of one neighbour.
    """

    def __init__(
        self,
        log: TuningLog,
        signature_of: Callable[[str], Signature | None],
        targets: Mapping[str, Target] | None = None,
        most_programs: int = 128,
        per_task: int = 32,
    ) -> None:
        self._log = log
        self._signature_of = signature_of
        self._most_programs = most_programs
        self._per_task = per_task
        self._targets = log.targets() if targets is None else targets
        timed = {key: count.timed for key, count in log.counts().items() if count.timed}
        self._keys = sorted(timed, key=lambda key: (-timed[key], key))
        self._signatures: dict[str, Signature | None] = {}
        self._records: dict[RecordKey, tuple[TuningRecord, ...]] = {}

    def near(self, key: RecordKey, signature: Signature, most_tasks: int = 24) -> Nearness:
        """Return the neighbours of ``key``, whose task has ``signature``; its own records are none."""
        close: list[tuple[float, RecordKey, str]] = []
        refused: list[str] = []
        name = key.space.partition("/")[0]
        for other in self._keys:
            if other == key or other.space.partition("/")[0] != name:
                continue
            distance, why = self._judged(key, signature, other)
            if math.isinf(distance):
                refused.append(why)
            else:
                close.append((distance, other, why))
        close.sort()
        used = [Neighbour(other, distance, why, self._fastest(other)) for distance, other, why in close[:most_tasks]]
        return Nearness(tuple(used), tuple(refused))

    def _judged(self, key: RecordKey, signature: Signature, other: RecordKey) -> tuple[float, str]:
        away, why = setting_distance(key, other, self._targets)
        if math.isinf(away) or other.task == key.task:
            return away, why
        known = self._signature(other.task)
        if known is None:
            return math.inf, "program unknown: the log does not hold it, or holds too many to look at"
        doublings, reason = shape_distance(known, signature)
        if reason:
            return math.inf, reason
        return away + doublings, ", ".join(filter(None, [f"shapes {doublings:.1f} doublings away", why]))

    def _signature(self, task: str) -> Signature | None:
        if task not in self._signatures:
            if len(self._signatures) >= self._most_programs:
                return None
            self._signatures[task] = self._signature_of(task)
        return self._signatures[task]

    def _fastest(self, key: RecordKey) -> tuple[TuningRecord, ...]:
        if key not in self._records:
            self._records[key] = tuple(self._log.fastest(key, self._per_task))
        return self._records[key]


def setting_distance(key: RecordKey, other: RecordKey, targets: Mapping[str, Target]) -> tuple[float, str]:
    """(distance of everything but the task, what differs) of ``other`` from ``key``; infinite where it is of no use."""
    if other.space != key.space:
        return math.inf, f"space differs: {other.space} there, {key.space} here"
    said: list[str] = []
    away = 0.0
    if other.target != key.target:
        there, here = targets.get(other.target), targets.get(key.target)
        if there is None or here is None:
            return math.inf, f"target differs: {other.target} there, {key.target} here"
        if reason := incompatibility(there, here):
            return math.inf, reason
        away = remoteness(there, here)
        said.append(f"target {other.target}")
    if other.tvm != key.tvm:
        away += OTHER_COMPILER
        said.append(f"tvm {other.tvm}")
    return away, ", ".join(said)


def shape_distance(there: Signature, here: Signature) -> tuple[float, str]:
    """(Σ |log2 ratio| over the axes of data, weight and output, why they cannot be compared or nothing).

    Other parameters are an epilogue's: each that only one of the two has counts half a doubling.
    """
    ours, theirs = _compared(here), _compared(there)
    if [dtype for _, dtype in ours] != [dtype for _, dtype in theirs]:
        return math.inf, f"dtypes differ: {_joined(theirs)} there, {_joined(ours)} here"
    if [len(shape) for shape, _ in ours] != [len(shape) for shape, _ in theirs]:
        return math.inf, f"ranks differ: {_ranks(theirs)} there, {_ranks(ours)} here"
    pairs = [(a, b) for (x, _), (y, _) in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True)]
    doublings = sum(abs(math.log2(max(a, 1) / max(b, 1))) for a, b in pairs)
    doublings += 0.5 * abs(len(here.shapes) - len(there.shapes))
    if doublings > FARTHEST:
        return math.inf, f"shapes differ by {doublings:.0f} doublings, more than {FARTHEST:.0f}"
    return doublings, ""


def _compared(signature: Signature) -> list[tuple[tuple[int, ...], str]]:
    """Shape and dtype of the first two parameters and the output."""
    pairs = list(zip(signature.shapes, signature.dtypes, strict=True))
    return [*pairs[: min(2, len(pairs) - 1)], pairs[-1]]


def _joined(compared: list[tuple[tuple[int, ...], str]]) -> str:
    return ",".join(dtype for _, dtype in compared)


def _ranks(compared: list[tuple[tuple[int, ...], str]]) -> str:
    return ",".join(str(len(shape)) for shape, _ in compared)
