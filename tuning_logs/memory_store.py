"""MemoryStore: a tuning log that lives as long as its process, for tests and replay. It promises all but durability."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from schedules.config import Config
from schedules.errors import LogError
from schedules.target import Target
from tuning_logs.codec import digest
from tuning_logs.explain import KeyCount, explain_miss
from tuning_logs.record import RecordKey, TuningRecord


class MemoryStore:
    """A TuningLog in dictionaries; see ``store.LogStore`` and ``log.TuningLog`` for what each method promises."""

    def __init__(self) -> None:
        self._digests: set[bytes] = set()
        self._all: list[TuningRecord] = []
        self._records: dict[RecordKey, list[TuningRecord]] = {}
        self._programs: dict[str, str] = {}
        self._targets: dict[str, Target] = {}
        self._lock = threading.Lock()
        self._closed = False

    def add_workload(self, task: str, program: str) -> None:
        """Keep ``program`` of ``task``; a known task is left as it is."""
        self._check_open()
        self._programs.setdefault(task, program)

    def workload(self, task: str) -> str | None:
        """The program kept for ``task``, or None."""
        self._check_open()
        return self._programs.get(task)

    def workloads(self) -> Iterator[tuple[str, str]]:
        """(task key, program) of every task whose program is kept, in the order of the keys."""
        self._check_open()
        return iter(sorted(self._programs.items()))

    def add_target(self, target: Target) -> None:
        """Keep the description of ``target``."""
        self._check_open()
        self._targets.setdefault(target.fingerprint, target)

    def targets(self) -> Mapping[str, Target]:
        """Every described target by fingerprint."""
        self._check_open()
        return dict(sorted(self._targets.items()))

    def append(self, records: Sequence[TuningRecord]) -> None:
        """Store ``records``: all or none."""
        self.absorb(records)

    def absorb(self, records: Sequence[TuningRecord]) -> int:
        """As ``append``; returns how many of ``records`` the log did not hold before."""
        self._check_open()
        named = [(digest(record), record) for record in records]  # all of them first: one may be refused
        with self._lock:
            before = len(self._digests)
            for name, record in named:
                if name not in self._digests:
                    self._digests.add(name)
                    self._all.append(record)
                    self._records.setdefault(record.key, []).append(record)
            return len(self._digests) - before

    def records(self, key: RecordKey | None = None) -> Iterator[TuningRecord]:
        """Every record of ``key`` (of the whole log if None), oldest measurement first."""
        self._check_open()
        with self._lock:
            found = list(self._all if key is None else self._records.get(key, ()))
        return iter(sorted(found, key=_age))

    def best(self, key: RecordKey) -> TuningRecord | None:
        """The successful record of ``key`` with the least ``latency_s``, each config by its newest, or None."""
        return next(iter(self.fastest(key, 1)), None)

    def fastest(self, key: RecordKey, count: int) -> list[TuningRecord]:
        """Up to ``count`` of the newest successful records of the configs of ``key``, fastest first."""
        return _current(self.records(key))[:count]

    def similar(
        self, space: str, target: str, tvm: str, per_task: int = 200
    ) -> Iterator[tuple[str, list[TuningRecord]]]:
        """Per task of this space, target and TVM: its configs' newest successful records, fastest first."""
        self._check_open()
        for key in sorted(self._records):
            if (key.space, key.target, key.tvm) == (space, target, tvm):
                records = _current(self.records(key))[:per_task]
                if records:
                    yield key.task, records

    def counts(self, task: str | None = None) -> Mapping[RecordKey, KeyCount]:
        """How many records there are of each key (of ``task`` only, unless None)."""
        self._check_open()
        return {key: _count(self._records[key]) for key in sorted(self._records) if task in (None, key.task)}

    def explain_miss(self, key: RecordKey) -> str:
        """One sentence: why ``best(key)`` finds nothing, naming the field that differs from the nearest records."""
        return explain_miss(key, self.counts(key.task), self.targets())

    def close(self) -> None:
        """Refuse any further use."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise LogError("the tuning log in memory was closed; make another one")


def _age(record: TuningRecord) -> float:
    return record.when


def _current(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """The newest successful record of every config, fastest first, ties by age. ``records`` come oldest first."""
    newest: dict[Config, TuningRecord] = {}
    for record in records:
        if record.measurement.ok:
            newest[record.config] = record
    return sorted(newest.values(), key=lambda record: (record.measurement.latency_s, record.when))


def _count(records: Iterable[TuningRecord]) -> KeyCount:
    timed, failed = 0, dict[str, int]()
    for record in records:
        if record.measurement.error is None:
            timed += 1
        else:
            failed[record.measurement.error] = failed.get(record.measurement.error, 0) + 1
    return KeyCount(timed, dict(sorted(failed.items())))
