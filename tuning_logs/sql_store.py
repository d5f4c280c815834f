"""TuningLog: the tuning log in a SQLite file or a PostgreSQL database. ``open_log`` opens either."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Double,
    FromClause,
    Row,
    ScalarSelect,
    Select,
    bindparam,
    case,
    exists,
    func,
    inspect,
    null,
    select,
    text,
    tuple_,
    union_all,
)
from sqlalchemy.dialects import postgresql, sqlite

from schedules.space import Space
from schedules.target import Target
from schedules.vocabulary.errors import LogError, UsageError
from tuning_logs.codec import CLOCKS_APART_S, LATEST_S, from_row, packed_text, program_sha256, to_row, unpacked_text
from tuning_logs.database import Database, memory_database, postgres_database, sqlite_database
from tuning_logs.explain import KeyCount, explain_miss
from tuning_logs.record import RecordKey, TuningRecord
from tuning_logs.schema import HEAD, KEYS, METADATA, RECORDS, TARGETS, UPGRADES, VERSION, WORKLOADS

LOG = logging.getLogger(__name__)
PAGE = 1000
"""Records read at once: a long walk then holds no transaction open, which would keep SQLite's WAL from shrinking."""

BY_SPEED = (RECORDS.c.latency_s, RECORDS.c.measured_at, RECORDS.c.id)
"""Columns by which ``current_records`` are ordered."""

_SUMS = (func.count(), func.max(RECORDS.c.id), func.sum(RECORDS.c.id))
"""State of a key's records: what changes with any of them."""

_UPGRADE_LOCK = 0x74756E65
"""PostgreSQL's advisory lock that lets one process at a time create or upgrade the schema."""


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
        _prepare_schema(database)
    except BaseException:  # whatever it was, the file must not stay open
        database.close()
        raise
    return TuningLog(database)


def memory_log() -> TuningLog:
    """An empty tuning log that lasts as long as the object: everything but durability, for tests and replay."""
    database = memory_database()
    _prepare_schema(database)
    return TuningLog(database)


def _prepare_schema(database: Database) -> None:
    outdated = database.read(lambda connection: _found_schema(connection, database.where)) != int(HEAD)
    database.set_journal_mode()
    if outdated:
        database.write(lambda connection: _upgrade(connection, database.where))


def _found_schema(connection: Connection, where: str) -> int:
    """The number of the log's schema, 0 for an empty database.

    Raises:
        LogError: if it is newer than ours, or somebody else's.
    """
    names = set(inspect(connection).get_table_names())
    if connection.dialect.name == "sqlite":
        _check_plain(connection, where)
    if VERSION.name not in names:
        ours = names & set(METADATA.tables)
        if ours or (names and connection.dialect.name == "sqlite"):
            raise LogError(
                f"{where} is a database but not a tuning log (it has the tables {', '.join(sorted(names)[:5])}); "
                "give another --log"
            )
        return 0
    schema = str(connection.execute(select(func.max(VERSION.c.version_num))).scalar())
    if schema.isdigit() and int(schema) <= int(HEAD):
        return int(schema)
    raise LogError(
        f"the tuning log {where} has schema {schema}, this version knows up to {HEAD}; "
        "upgrade with 'pip install --upgrade tune-compiler', or give another --log"
    )


_CODE_IN_SCHEMA = text("SELECT name FROM sqlite_master WHERE type IN ('view', 'trigger') OR sql LIKE 'CREATE VIRTUAL%'")
"""Query for code that runs when a file is read or written, and is in no log of ours."""


def _check_plain(connection: Connection, where: str) -> None:
    """Refuse a file whose schema holds more than tables and indices.

    Raises:
        LogError: naming what it holds.
    """
    odd = connection.execute(_CODE_IN_SCHEMA).scalars().first()
    if odd is not None:
        raise LogError(
            f"{where} is not a plain tuning log (it holds {ascii(odd)[:60]}, a view, a trigger or a virtual table); "
            "give another --log"
        )


def _upgrade(connection: Connection, where: str) -> None:
    """Make the tables of an empty database, or bring an older log's to the newest schema."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
    schema = _found_schema(connection, where)  # read again: another process may have come first
    if not schema:
        VERSION.create(connection)
        METADATA.create_all(connection)
        connection.execute(VERSION.insert(), {"version_num": HEAD})
        return
    for step in UPGRADES[schema - 1 :]:
        step(connection)
    connection.execute(VERSION.update(), {"version_num": HEAD})


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
        return next((program for _, program in _programs(self.rows(query))), None)

    def workloads(self) -> Iterator[tuple[str, str]]:
        """(task key, program) of every task whose program is kept, in the order of the keys."""
        yield from _programs(self.program_rows())

    def program_rows(self) -> Iterator[Row[Any]]:
        """Rows of the tasks whose program is kept, in the order of the keys."""
        return self._walk(select(WORKLOADS).where(WORKLOADS.c.program.is_not(None)), [WORKLOADS.c.task], PAGE // 10)

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
        described = {row.fingerprint: _target(row.description) for row in self.rows(query)}
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
                number = connection.execute(_key_query(key)).scalar_one()
            numbers[key] = number
        return numbers

    def _key_number(self, key: RecordKey) -> int | None:
        if key not in self._key_ids:
            number = self.database.read(lambda connection: connection.execute(_key_query(key)).scalar())
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
        for row in self._walk(query, order, PAGE):
            if row.key_id not in keys:
                key_rows = self.rows(select(KEYS))
                keys = {
                    key_row.id: RecordKey(key_row.task, key_row.target, key_row.space, key_row.tvm)
                    for key_row in key_rows
                }
            yield row, keys.setdefault(row.key_id, None)

    def _walk(self, query: Select[Any], order: Sequence[Column[Any]], size: int) -> Iterator[Row[Any]]:
        """The rows of ``query`` by ``order``, whose columns identify a row; ``size`` of them in a transaction."""
        query = query.order_by(*order).limit(size)
        page = self.rows(query)
        while page:
            yield from page
            last = [getattr(page[-1], column.name) for column in order]
            page = self.rows(query.where(tuple_(*order) > last))

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
            number = _key_query(key).scalar_subquery()
        rows = self.rows(current_records(number).limit(count))
        if rows:
            self._key_ids[key] = rows[0].key_id
        yield from rows
        if len(rows) == count:
            last = [getattr(rows[-1], column.name) for column in BY_SPEED]
            yield from self._walk(
                current_records(number).order_by(None).where(tuple_(*BY_SPEED) > last), BY_SPEED, PAGE
            )

    def counts(self, task: str | None = None) -> Mapping[RecordKey, KeyCount]:
        """Return how many records there are of each key (of ``task`` only, unless None)."""
        by_kind: dict[RecordKey, dict[str | None, int]] = {}
        for row in self.rows(_count_query(task)):
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
        return repr(sorted(tuple(row) for row in self.rows(query)))

    def explain_miss(self, key: RecordKey) -> str:
        """One sentence: why ``best(key)`` finds nothing, naming the field that differs from the nearest records."""
        return explain_miss(key, self.counts(key.task), self.targets())

    def close(self) -> None:
        """Release files and connections."""
        self.database.close()

    def rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        """Return the rows that ``query`` selects, read in one transaction."""
        return self.database.read(lambda connection: connection.execute(query).all())


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


def _key_query(key: RecordKey) -> Select[Any]:
    return select(KEYS.c.id).where(
        KEYS.c.task == key.task, KEYS.c.target == key.target, KEYS.c.space == key.space, KEYS.c.tvm == key.tvm
    )


def _count_query(task: str | None) -> Select[Any]:
    """Number of records by key and error kind, NULL for the timed ones; each half is answered by an index alone."""
    timed = select(RECORDS.c.key_id, null().label("error"), func.count().label("number"))
    timed = timed.where(RECORDS.c.latency_s.is_not(None)).group_by(RECORDS.c.key_id)
    failed = select(RECORDS.c.key_id, RECORDS.c.error, func.count().label("number"))
    failed = failed.where(RECORDS.c.error.is_not(None)).group_by(RECORDS.c.key_id, RECORDS.c.error)
    if task is not None:
        numbers = select(KEYS.c.id).where(KEYS.c.task == task)
        timed, failed = timed.where(RECORDS.c.key_id.in_(numbers)), failed.where(RECORDS.c.key_id.in_(numbers))
    both = union_all(failed, timed).subquery()
    return select(KEYS.c.task, KEYS.c.target, KEYS.c.space, KEYS.c.tvm, both.c.error, both.c.number).join(
        both, both.c.key_id == KEYS.c.id
    )


def _latest_s() -> float:
    """Seconds since the epoch after which no record can have been measured yet."""
    return time.time() + CLOCKS_APART_S


def _age(record: FromClause) -> ColumnElement[Any]:
    """Return what orders measurements of a config; the greatest is the newest.

    Records from the future come before all others: one would otherwise count for ever. Somebody's clock was wrong, and
    perhaps this machine's is, so they are no less valid while a config has no others. An old clock thus brings back
    older measurements of configs that were measured again, and hides none.
    """
    now: BindParameter[float] = bindparam(None, callable_=_latest_s, type_=Double())  # asked when a statement runs
    return tuple_(case((record.c.measured_at <= now, 1), else_=0), record.c.measured_at, record.c.id)


def _all_current() -> Select[Any]:
    """The newest successful record of every config of every key, fastest first, ties by age."""
    newer = RECORDS.alias("newer")
    readable = RECORDS.c.measured_at <= LATEST_S
    measured_again = exists().where(
        newer.c.key_id == RECORDS.c.key_id,
        newer.c.config_hash == RECORDS.c.config_hash,
        newer.c.config == RECORDS.c.config,
        newer.c.latency_s.is_not(None),
        newer.c.measured_at <= LATEST_S,
        _age(newer) > _age(RECORDS),
    )
    return select(RECORDS).where(RECORDS.c.latency_s.is_not(None), readable, ~measured_again).order_by(*BY_SPEED)


_ALL_CURRENT = _all_current()
"""Made once: a statement takes as long to make as to run."""


def current_records(key_number: int | ScalarSelect[int]) -> Select[Any]:
    """The newest successful record of every config of a key, fastest first, ties by age.

    The index ``records_by_speed`` gives rows by speed and ``records_by_config`` tells whether a row's config was
    measured again, so the first row costs as many steps as its config and outdated luckier ones have measurements.
    """
    return _ALL_CURRENT.where(RECORDS.c.key_id == key_number)
