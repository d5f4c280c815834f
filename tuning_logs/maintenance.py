"""Maintenance of a tuning log: ``verify`` finds damage, ``gc`` drops records of chosen kinds, ``stats`` sums up."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, Connection, Row, delete, func, select, text

from schedules.target import Target
from schedules.vocabulary.bounded import MOST_DEPTH, parsed_json
from schedules.vocabulary.errors import LogError, UsageError
from tuning_logs.codec import from_row, program_sha256, to_row, unpacked_text
from tuning_logs.exchange import ProgramCheck
from tuning_logs.queries import PROGRAMS, current_records
from tuning_logs.record import RecordKey
from tuning_logs.schema import HEAD, KEYS, RECORDS, TARGETS, WORKLOADS
from tuning_logs.sql_store import PAGE, TuningLog

Droppable = Literal["failed", "dominated", "damaged"]
"""Rows that ``gc`` may drop: failed measurements, those that a better or newer one stands for, damaged rows."""


@dataclass(frozen=True)
class VerifyReport:
    """How much was looked at, and one line per problem."""

    records: int
    workloads: int
    targets: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


@dataclass(frozen=True)
class GcReport:
    """Records dropped by kind (that would be dropped, on a dry run), and the log's size before and after."""

    dropped: Mapping[str, int]
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True)
class Stats:
    """The content of a log in figures.

    Attributes:
        where, schema, bytes: the log itself.
        tasks, targets, keys: distinct ones that have records.
        workloads: tasks whose program is kept.
        records, timed, failed: measurements; the failed ones by kind.
        oldest, newest: seconds since the epoch; None in an empty log.
        spent_s: seconds of compiling and running that the records stand for.
    """

    where: str
    schema: str
    bytes: int
    tasks: int
    targets: int
    keys: int
    workloads: int
    records: int
    timed: int
    failed: Mapping[str, int]
    oldest: float | None
    newest: float | None
    spent_s: float


def verify(store: TuningLog, refusal: ProgramCheck) -> VerifyReport:
    """Check the file, its foreign keys, and every record, program and target against its hash.

    Args:
        refusal: asked about every program whose bytes are as they were stored.
    """
    problems = []
    counts = []
    for part in (_structure, _records, partial(_workloads, refusal=refusal), _targets):
        looked_at = 0
        try:
            for problem in part(store):
                looked_at += 1
                if problem:
                    problems.append(problem)
        except LogError as error:  # a damaged page ends this part, not the others
            problems.append(str(error))
        counts.append(looked_at)
    return VerifyReport(records=counts[1], workloads=counts[2], targets=counts[3], problems=tuple(problems))


def _structure(store: TuningLog) -> Iterator[str]:
    if store.database.is_sqlite:
        for statement in ("PRAGMA integrity_check", "PRAGMA foreign_key_check"):
            rows = store.database.read(lambda connection, s=statement: connection.execute(text(s)).all())  # type: ignore[misc]
            yield from (f"{statement}: {' '.join(map(str, row))}" for row in rows if row[0] != "ok")


def _records(store: TuningLog) -> Iterator[str]:
    """One item per record: a problem, or nothing."""
    yield from (problem for _, problem in _checked_records(store))


def _checked_records(store: TuningLog) -> Iterator[tuple[int, str]]:
    """(row number, problem or nothing) of every record."""
    for row, key in store.keyed_rows(select(RECORDS), [RECORDS.c.id]):
        yield row.id, _record_problem(row, key)


def _record_problem(row: Row[Any], key: RecordKey | None) -> str:
    if key is None:
        return f"record {row.id}: its key {row.key_id} is missing"
    try:
        expected = to_row(from_row(row, key), row.key_id)
    except LogError as error:
        return f"record {row.id}: {error}"
    # A trace's compressed bytes depend on zlib's version; its content is in the digest.
    wrong = [name for name, value in expected.items() if name != "trace" and row._mapping[name] != value]
    return f"record {row.id}: {', '.join(wrong)} do not match its content" if wrong else ""


def _workloads(store: TuningLog, refusal: ProgramCheck) -> Iterator[str]:
    for row in store.database.walk(PROGRAMS, [WORKLOADS.c.task], PAGE // 10):
        try:
            program = unpacked_text(row.program)
            damaged = program_sha256(program) != row.sha256
            why = "hash mismatch" if damaged else refusal(row.task, program)
        except ValueError as error:
            why = str(error)
        yield f"workload {row.task}: {why}" if why else ""


def _targets(store: TuningLog) -> Iterator[str]:
    for row in store.database.rows(select(TARGETS).where(TARGETS.c.description.is_not(None))):
        try:
            described = Target.from_json(row.description).fingerprint
        except UsageError:  # another version may have written it
            try:
                plain = isinstance(parsed_json(row.description, MOST_DEPTH), dict)
                yield "" if plain else f"target {row.fingerprint}: not an object"
            except ValueError as error:
                yield f"target {row.fingerprint}: {error}"
            continue
        yield "" if described == row.fingerprint else f"target {row.fingerprint}: it describes {described}"


def gc(store: TuningLog, drop: Collection[Droppable], before: float, keep: int = 64, dry_run: bool = False) -> GcReport:
    """Drop records measured before ``before`` and give their space back. What ``best`` answers stays the same.

    Args:
        store: the log.
        drop: ``failed``: failed measurements. ``dominated``: successful ones that are not among the ``keep`` fastest
            configs' newest records of their key. ``damaged``: records that do not match their hash, of any age.
        before: seconds since the epoch.
        keep: configs per key that are never dominated; at least 1.
        dry_run: only count.

    Raises:
        UsageError: on an unknown kind or ``keep`` below 1.
    """
    unknown = set(drop) - set(get_args(Droppable))
    if unknown:
        raise UsageError(
            f"--drop {','.join(sorted(unknown))}: unknown; choose some of {', '.join(get_args(Droppable))}"
        )
    if keep < 1:
        raise UsageError(f"--keep {keep}: must be at least 1")
    size = store.database.bytes()
    dropped = {}
    old = RECORDS.c.measured_at < before
    if "damaged" in drop:
        dropped["damaged"] = _drop_damaged(store, dry_run)
    if "failed" in drop:
        dropped["failed"] = _dropped(store, [RECORDS.c.latency_s.is_(None), old], dry_run)
    if "dominated" in drop:
        numbers = [row.id for row in store.database.rows(select(KEYS.c.id))]
        dropped["dominated"] = sum(_drop_dominated(store, number, old, keep, dry_run) for number in numbers)
    if not dry_run:
        store.database.compact()
    return GcReport(dropped, size, store.database.bytes())


def _drop_damaged(store: TuningLog, dry_run: bool) -> int:
    numbers = [number for number, problem in _checked_records(store) if problem]
    pages = [numbers[start : start + PAGE // 2] for start in range(0, len(numbers), PAGE // 2)]
    return sum(_dropped(store, [RECORDS.c.id.in_(page)], dry_run) for page in pages)


def _drop_dominated(store: TuningLog, key_number: int, old: ColumnElement[bool], keep: int, dry_run: bool) -> int:
    """Drop dominated records: a config keeps its newest, which goes last, so that no older one replaces it."""
    kept = current_records(key_number).limit(keep).with_only_columns(RECORDS.c.id).correlate(None)
    rows = [RECORDS.c.key_id == key_number, RECORDS.c.latency_s.is_not(None), old, RECORDS.c.id.not_in(kept)]
    return _dropped(store, rows, dry_run)


def _dropped(store: TuningLog, which: list[ColumnElement[bool]], dry_run: bool) -> int:
    def count(connection: Connection) -> int:
        return int(connection.execute(select(func.count()).select_from(RECORDS).where(*which)).scalar_one())

    def drop(connection: Connection) -> int:
        if not store.database.is_sqlite:  # SQLite's writers are alone anyway
            connection.execute(text("LOCK TABLE records IN SHARE ROW EXCLUSIVE MODE"))
        return connection.execute(delete(RECORDS).where(*which)).rowcount

    return store.database.read(count) if dry_run else store.database.write(drop)


def stats(store: TuningLog) -> Stats:
    """Return the content of ``store`` in figures."""
    counts = store.counts()
    failed: dict[str, int] = {}
    for count in counts.values():
        for kind, number in count.failed.items():
            failed[kind] = failed.get(kind, 0) + number
    query = select(
        func.min(RECORDS.c.measured_at).label("oldest"),
        func.max(RECORDS.c.measured_at).label("newest"),
        func.coalesce(func.sum(RECORDS.c.compile_s + RECORDS.c.run_s), 0.0).label("spent_s"),
    )
    totals = store.database.rows(query)[0]
    return Stats(
        where=store.database.where,
        schema=HEAD,
        bytes=store.database.bytes(),
        tasks=len({key.task for key in counts}),
        targets=len({key.target for key in counts}),
        keys=len(counts),
        workloads=store.database.rows(select(func.count()).where(WORKLOADS.c.program.is_not(None)))[0][0],
        records=sum(count.total for count in counts.values()),
        timed=sum(count.timed for count in counts.values()),
        failed=dict(sorted(failed.items())),
        oldest=totals.oldest,
        newest=totals.newest,
        spent_s=totals.spent_s,
    )
