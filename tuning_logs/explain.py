"""Why a log has no record for a key, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from schedules.target import Target
from tuning_logs.record import RecordKey


@dataclass(frozen=True)
class KeyCount:
    """How many records a log holds of one key.

    Attributes:
        timed: successful measurements.
        failed: failed ones, by error kind.
    """

    timed: int
    failed: Mapping[str, int]

    @property
    def total(self) -> int:
        """All of them."""
        return self.timed + sum(self.failed.values())


def explain_miss(key: RecordKey, same_task: Mapping[RecordKey, KeyCount], targets: Mapping[str, Target]) -> str:
    """One sentence on why nothing in the log answers for ``key``.

    Args:
        key: what was asked for.
        same_task: every key of the same task that has records.
        targets: descriptions of fingerprints, where known.
    """
    present = {other: count for other, count in same_task.items() if count.total}
    if not present:
        return f"the log has no record of task {key.task}: it was never measured, or its program changed"
    own = present.get(key)
    if own is not None and own.timed:
        return f"nothing is missing: the log has {own.timed} timed records of this task for target {key.target}"
    if own is not None:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(own.failed.items()))
        return f"the log has {own.total} records of this task for target {key.target}, but all failed: {kinds}"
    nearest = min(present, key=lambda other: (_distance(key, other), -present[other].timed, other))
    others = len(present) - 1
    rest = f" (and {others} further combination{'s' if others > 1 else ''} of target, space and TVM)" if others else ""
    return (
        f"the log has {_records(present[nearest].total)} of this task for target {nearest.target}{rest}: "
        f"{'; '.join(_differences(key, nearest, targets))}"
    )


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def _distance(key: RecordKey, other: RecordKey) -> int:
    return (key.target != other.target) + (key.space != other.space) + (key.tvm != other.tvm)


def _differences(key: RecordKey, other: RecordKey, targets: Mapping[str, Target]) -> list[str]:
    """Words per differing field; a target is taken apart into its own fields where both are described."""
    differences = []
    if key.target != other.target:
        differences += _target_differences(key.target, other.target, targets)
    for name in ("space", "tvm"):
        here, there = getattr(key, name), getattr(other, name)
        if here != there:
            differences.append(f"{name} differs: {there} there, {here} here")
    return differences


def _target_differences(here: str, there: str, targets: Mapping[str, Target]) -> list[str]:
    if here not in targets or there not in targets:
        return [f"target differs: {there} there, {here} here"]
    ours, theirs = asdict(targets[here]), asdict(targets[there])
    return [
        f"{name} differs: {_shown(theirs[name])} there, {_shown(ours[name])} here"
        for name in ours
        if ours[name] != theirs[name] and name != "l3_bytes"  # the shared cache takes no part in the fingerprint
    ]


def _shown(value: object) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) or "none"
    return str(value) if value != "" else "none"
