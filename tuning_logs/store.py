"""LogStore: the contract of every tuning log, whatever it is kept in.

1. ``append`` is durable: when it returns, a power cut loses none of its records; if it raises, none were stored.
2. Records are never changed and never silently dropped.
3. A query answers for exactly one key. Records of another target, space version or TVM are never mixed in.
4. Several processes may append to and read one log at the same time.
5. The same config may be recorded many times; ``best`` ranks a config by its newest successful measurement
   (a re-measurement corrects an older, luckier one).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from tuning_logs.record import RecordKey, TuningRecord


@runtime_checkable
class LogStore(Protocol):
    """Where measurements are kept. Errors are ``LogError`` with a one-line remedy."""

    def add_workload(self, task: str, program: str) -> None:
        """Keep the normalised PrimFunc (``program``, JSON text) of ``task``; a known task is left as it is."""

    def workload(self, task: str) -> str | None:
        """The program kept for ``task``, or None."""

    def append(self, records: Sequence[TuningRecord]) -> None:
        """Store ``records`` in one durable transaction: all or none."""

    def records(self, key: RecordKey | None = None) -> Iterator[TuningRecord]:
        """Every record of ``key`` (of the whole log if None), oldest first."""

    def best(self, key: RecordKey) -> TuningRecord | None:
        """The successful record of ``key`` with the least ``latency_s``, or None."""

    def explain_miss(self, key: RecordKey) -> str:
        """One sentence: why ``best(key)`` finds nothing, naming the field that differs from the nearest records."""

    def close(self) -> None:
        """Release files and connections; a closed store raises ``LogError`` on use."""
