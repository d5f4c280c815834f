"""TuningLog: what every kept log can do beyond LogStore, so that logs can be merged, explained and learned from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from schedules.target import Target
from tuning_logs.explain import KeyCount
from tuning_logs.record import RecordKey, TuningRecord
from tuning_logs.store import LogStore


@runtime_checkable
class TuningLog(LogStore, Protocol):
    """A LogStore that also keeps targets and can be walked as a whole.

    A record is its content: appending one that the log already holds changes nothing, so an append whose
    acknowledgement was lost may be repeated, and import and merge never duplicate.
    """

    def absorb(self, records: Sequence[TuningRecord]) -> int:
        """As ``append``; returns how many of ``records`` the log did not hold before."""

    def add_target(self, target: Target) -> None:
        """Keep the description of ``target``, so that a miss can be explained field by field."""

    def targets(self) -> Mapping[str, Target]:
        """Every described target by fingerprint."""

    def workloads(self) -> Iterator[tuple[str, str]]:
        """(task key, program) of every task whose program is kept, in the order of the keys."""

    def counts(self, task: str | None = None) -> Mapping[RecordKey, KeyCount]:
        """How many records there are of each key (of ``task`` only, unless None)."""

    def fastest(self, key: RecordKey, count: int) -> list[TuningRecord]:
        """Up to ``count`` of the newest successful records of the configs of ``key``, fastest first."""
