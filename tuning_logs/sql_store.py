"""TuningLog: the tuning log in a SQLite file or a PostgreSQL database. ``open_log`` opens either."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Row,
    ScalarSelect,
    Select,
    func,
    select,
    tuple_,
)
from sqlalchemy.dialects import postgresql, sqlite

from schedules.space import Space
from schedules.target import Target
from schedules.vocabulary.errors import LogError, UsageError
from tuning_logs.codec import from_row, packed_text, program_sha256, to_row, unpacked_text
from tuning_logs.database import Database, memory_database, postgres_database, sqlite_database
from tuning_logs.explain import KeyCount, explain_miss
from tuning_logs.queries import BY_SPEED, PROGRAMS, count_query, current_records, key_query
from tuning_logs.record import RecordKey, TuningRecord
from tuning_logs.schema import KEYS, RECORDS, TARGETS, WORKLOADS
from tuning_logs.schema_upgrades import prepare_schema

LOG = logging.getLogger(__name__)
PAGE = 1000
"""Records read at once: a long walk then holds no transaction open, which would keep SQLite's WAL from shrinking."""

_SUMS = (func.count(), func.max(RECORDS.c.id), func.sum(RECORDS.c.id))
"""State of a key's records: what changes with any of them."""


def open_log(url_or_path: str | Path, only_read: bool = False) -> TuningLog:
    """The tuning log at a path or a ``postgresql://`` URL, made if it is missing, upgraded if its schema is older.

    Args:
        only_read: neither make nor upgrade it, and leave a file and its folder as they are.

    Raises:
        LogError: if it cannot be opened, is something else, or was written by a newer version.
    """
    address = str(url_or_path)
    if address.startswith(("postgresql://", "postgres://", "postgresql+psycopg://")):
        database = postgres_database("postgresql://" + address.split("://", 1)[1])
        database.read_only = only_read
    elif address.startswith("sqlite:///"):
        database = sqlite_database(Path(address.removeprefix("sqlite:///")), only_read)
    elif isinstance(url_or_path, str) and "://" in address:
        raise LogError(
            f"a tuning log cannot be kept at {address.split('://')[0]}://…; give a path or a postgresql:// URL"
        )
    elif not address or "\0" in address:
        raise LogError(f"{address!r} is no path for a tuning log; give a file, such as tuning.db")
    else:
        database = sqlite_database(Path(url_or_path), only_read)
    try:
        prepare_schema(database)
    except BaseException:  # whatever it was, the file must not stay open
        database.close()
        raise
    return TuningLog(database)


def memory_log() -> TuningLog:
    """An empty tuning log that lasts as long as the object: everything but durability, for tests and replay."""
    database = memory_database()
    prepare_schema(database)
    return TuningLog(database)


class TuningLog:
    """The store of measurements, programs and targets.

    1. ``append`` is durable: when it returns, a power cut loses none of its records; if it raises, none were stored.
    2. Records are never changed and never silently dropped. Rows that do not decode, or hold what no record may, are
       left out of every answer; a warning counts them.
    3. A query answers for exactly one key. Records of another target, space version or TVM are never mixed in.
       Whoever acts on records names the space, too, and gets only those whose config it contains.
    4. Several processes may append to and read one log at the same time.
    5. The same config may be recorded many times; ``best`` ranks a config by its newest successful measurement
       (a re-measurement corrects an older, luckier one).
    6. A record is its content: appending one that the log already holds changes nothing. An append whose
       acknowledgement was lost may be repeated, and import and merge never duplicate.

    Errors are ``LogError`` with a one-line remedy, also for any use of a closed log.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._key_ids: dict[RecordKey, int] = {}
        self._insert = sqlite.insert if database.is_sqlite else postgresql.insert

    def add_workload(self, task: str, program: str) -> None:
        """Keep the normalised PrimFunc (``program``, JSON text) of ``task``, in place of one that was kept before.

        The caller knows that ``task`` is the hash of ``program``: the log cannot tell.
        """
        row = {"task": task, "program": packed_text(program), "sha256": program_sha256(program)}
        statement = self._insert(WORKLOADS)
        filled = statement.on_conflict_do_update(
            index_elements=["task"],
            set_={"program": statement.excluded.program, "sha256": statement.excluded.sha256},
            where=WORKLOADS.c.sha256.is_distinct_from(statement.excluded.sha256),
        )
        self.database.write(lambda connection: connection.execute(filled, row))

    def workload(self, task: str) -> str | None:
        """The program kept for ``task``, or None. It may be another's: whoever parses it compares its hash."""
        query = select(WORKLOADS.c.task, WORKLOADS.c.program).where(
            WORKLOADS.c.task == task, WORKLOADS.c.program.is_not(None)
        )
        return next((program for _, program in _programs(self.database.rows(query))), None)

    def workloads(self) -> Iterator[tuple[str, str]]:
        """(task key, program) of every task whose program is kept, in the order of the keys."""
        yield from _programs(self.database.walk(PROGRAMS, [WORKLOADS.c.task], PAGE // 10))

    def add_target(self, target: Target) -> None:
        """Keep the description of ``target``, so that a miss can be explained field by field."""
        row = {"fingerprint": target.fingerprint, "description": target.to_json()}
        statement = self._insert(TARGETS)
        filled = statement.on_conflict_do_update(
            index_elements=["fingerprint"],
            set_={"description": statement.excluded.description},
            where=TARGETS.c.description.is_(None),
        )
        self.database.write(lambda connection: connection.execute(filled, row))

    def targets(self) -> Mapping[str, Target]:
        """Every described target by fingerprint."""
        query = select(TARGETS).where(TARGETS.c.description.is_not(None)).order_by(TARGETS.c.fingerprint)
        described = {row.fingerprint: _target(row.description) for row in self.database.rows(query)}
        return {name: target for name, target in described.items() if target and target.fingerprint == name}

    def append(self, records: Sequence[TuningRecord]) -> int:
        """Store ``records`` in one durable transaction, all or none; how many of them the log did not hold before."""
        if not records:
            self.database.read(lambda _: None)  # a closed log says so, whatever it is given
            return 0
        # Sorted, so that two writers who share keys lock them in the same order.
        keys = sorted({record.key for record in records})

        def store(connection: Connection) -> tuple[int, dict[RecordKey, int]]:
            ids = self._key_numbers(connection, keys)
            rows = [to_row(record, ids[record.key]) for record in records]
            return self._stored(connection, rows), ids

        added, ids = self.database.write(store)
        self._key_ids.update(ids)  # only now: a transaction that was rolled back made none
        return added

    def _stored(self, connection: Connection, rows: list[dict[str, Any]]) -> int:
        """Insert ``rows``; how many were new."""
        statement = self._insert(RECORDS).on_conflict_do_nothing(index_elements=["digest"])
        if self.database.is_sqlite:
            return connection.execute(statement, rows).rowcount
        # Elsewhere the rows go out in several statements, of which only RETURNING counts them all.
        return len(connection.execute(statement.returning(RECORDS.c.id), rows).all())

    def _key_numbers(self, connection: Connection, keys: Iterable[RecordKey]) -> dict[RecordKey, int]:
        """Row number of each of ``keys``, made where it is missing."""
        numbers = {}
        for key in keys:
            number = self._key_ids.get(key)
            if number is None:
                connection.execute(self._insert(WORKLOADS).on_conflict_do_nothing(), {"task": key.task})
                connection.execute(self._insert(TARGETS).on_conflict_do_nothing(), {"fingerprint": key.target})
                connection.execute(self._insert(KEYS).on_conflict_do_nothing(), vars(key))
                number = connection.execute(key_query(key)).scalar_one()
            numbers[key] = number
        return numbers

    def _key_number(self, key: RecordKey) -> int | None:
        if key not in self._key_ids:
            number = self.database.read(lambda connection: connection.execute(key_query(key)).scalar())
            if number is None:
                return None
            self._key_ids[key] = number
        return self._key_ids[key]

    def records(self, key: RecordKey | None = None, space: Space | None = None) -> Iterator[TuningRecord]:
        """Every record of ``key`` (of the whole log if None), oldest measurement first.

        Args:
            space: leave out records of configs that it does not contain. None, which checks nothing, is for those
                who show or pass on records.
        """
        query = select(RECORDS)
        if key is not None:
            query = query.where(RECORDS.c.key_id == self._key_number(key))
        yield from _sound(self.keyed_rows(query, [RECORDS.c.measured_at, RECORDS.c.id]), space)

    def keyed_rows(
        self, query: Select[Any], order: Sequence[Column[Any]]
    ) -> Iterator[tuple[Row[Any], RecordKey | None]]:
        """Each row of ``RECORDS`` that ``query`` selects, by ``order``, with its key; None where the key is missing."""
        keys: dict[int, RecordKey | None] = {}
        for row in self.database.walk(query, order, PAGE):
            if row.key_id not in keys:
                key_rows = self.database.rows(select(KEYS))
                keys = {
                    key_row.id: RecordKey(key_row.task, key_row.target, key_row.space, key_row.tvm)
                    for key_row in key_rows
                }
            yield row, keys.setdefault(row.key_id, None)

    def best(self, key: RecordKey, space: Space | None = None) -> TuningRecord | None:
        """The successful record of ``key`` with the least ``latency_s``, each config by its newest, or None.

        Args:
            space: as for ``records``.
        """
        return next(self.ranked(key, space), None)

    def fastest(self, key: RecordKey, count: int, space: Space | None = None) -> list[TuningRecord]:
        """Up to ``count`` of the newest successful records of the configs of ``key``, fastest first.

        Args:
            space: as for ``records``.
        """
        return list(itertools.islice(self.ranked(key, space, count), count))

    def ranked(self, key: RecordKey, space: Space | None = None, count: int = 1) -> Iterator[TuningRecord]:
        """The newest successful record of every config of ``key``, fastest first.

        Args:
            space: as for ``records``.
            count: how many are probably wanted: so many are read at first.
        """
        yield from _sound(((row, key) for row in self._ranked_rows(key, count)), space)

    def _ranked_rows(self, key: RecordKey, count: int) -> Iterator[Row[Any]]:
        number: int | ScalarSelect[int] | None = self._key_ids.get(key)
        if number is None:  # asked for along with the records: a server is asked once
            number = key_query(key).scalar_subquery()
        rows = self.database.rows(current_records(number).limit(count))
        if rows:
            self._key_ids[key] = rows[0].key_id
        yield from rows
        if len(rows) == count:
            last = [getattr(rows[-1], column.name) for column in BY_SPEED]
            yield from self.database.walk(
                current_records(number).order_by(None).where(tuple_(*BY_SPEED) > last), BY_SPEED, PAGE
            )

    def counts(self, task: str | None = None) -> Mapping[RecordKey, KeyCount]:
        """Return how many records there are of each key (of ``task`` only, unless None)."""
        by_kind: dict[RecordKey, dict[str | None, int]] = {}
        for row in self.database.rows(count_query(task)):
            by_kind.setdefault(RecordKey(row.task, row.target, row.space, row.tvm), {})[row.error] = row.number
        return {
            key: KeyCount(kinds.pop(None, 0), {str(kind): kinds[kind] for kind in sorted(map(str, kinds))})
            for key, kinds in sorted(by_kind.items())
        }

    def state(self, tasks: Sequence[str], targets: Sequence[str]) -> str:
        """Return numbers that tell whether the records of ``tasks`` (keys) on ``targets`` (fingerprints) have changed.

        Records never change, and a new one has a new number.
        """
        query = (
            select(KEYS.c.task, KEYS.c.target, KEYS.c.space, KEYS.c.tvm, *_SUMS)
            .join(RECORDS, RECORDS.c.key_id == KEYS.c.id)
            .where(KEYS.c.task.in_(tasks), KEYS.c.target.in_(targets))
            .group_by(KEYS.c.id)
        )
        return repr(sorted(tuple(row) for row in self.database.rows(query)))

    def explain_miss(self, key: RecordKey) -> str:
        """One sentence: why ``best(key)`` finds nothing, naming the field that differs from the nearest records."""
        return explain_miss(key, self.counts(key.task), self.targets())

    def close(self) -> None:
        """Release files and connections."""
        self.database.close()


def _programs(rows: Iterable[Row[Any]]) -> Iterator[tuple[str, str]]:
    """(task key, program) of each of ``rows`` that decodes; a warning names the others."""
    for row in rows:
        try:
            yield row.task, unpacked_text(row.program)
        except ValueError as error:
            LOG.warning("the program of task %s in the tuning log is left out: %s", ascii(row.task)[:60], error)


def _sound(rows: Iterable[tuple[Row[Any], RecordKey | None]], space: Space | None) -> Iterator[TuningRecord]:
    """The records in ``rows`` that decode and whose config ``space`` contains; a warning counts the others."""
    refused, first = 0, ""
    try:
        for row, key in rows:
            try:
                record = from_row(row, key)
                if space is not None and not space.contains(record.config):
                    raise LogError(
                        f"record {row.id} of the tuning log has a config that {space.identity} does not offer"
                    )
            except LogError as error:
                refused, first = refused + 1, first or str(error)
                continue
            yield record
    finally:  # also where whoever asked has enough
        if refused:
            LOG.warning("%s", first if refused == 1 else f"{refused} records were left out; the first: {first}")


def _target(description: str) -> Target | None:
    try:
        return Target.from_json(description)
    except UsageError as error:
        LOG.debug("a target is left undescribed, as another version wrote it: %s", error)
        return None
