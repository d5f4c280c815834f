"""The migrations build what the code expects, and a log of every released schema still opens."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

import tuning_logs
from schedules.target import Target
from tests.tuning_logs_tests.samples import AVX512, KEY, failed, timed
from tuning_logs.maintenance import verify
from tuning_logs.schema import HEAD, METADATA, VERSION_TABLE
from tuning_logs.sql_store import open_log

RELEASED = sorted((Path(__file__).parent / "released").glob("*.sql"))


def test_the_migrations_build_the_tables_of_the_code(tmp_path: Path) -> None:
    log = open_log(tmp_path / "tuning.db")
    with log.database.engine.connect() as connection:
        options = {"version_table": VERSION_TABLE}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), METADATA) == []
    log.close()


def test_partial_indices_are_partial(tmp_path: Path) -> None:
    # Autogenerate does not look at these conditions.
    log = open_log(tmp_path / "tuning.db")
    with log.database.engine.connect() as connection:
        sql = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name LIKE 'records_by_%'").scalars().all()
    log.close()
    assert sorted(text.partition(" WHERE ")[2] for text in sql) == [
        "",
        "error IS NOT NULL",
        *["latency_s IS NOT NULL"] * 2,
    ]


def test_migrations_are_numbered_without_gaps_and_each_release_is_tested() -> None:
    folder = Path(tuning_logs.__file__).parent / "migrations" / "versions"
    numbers = sorted(path.stem.removeprefix("schema_") for path in folder.glob("schema_*.py"))
    assert numbers == [f"{number:04}" for number in range(1, int(HEAD) + 1)]
    assert [path.stem for path in RELEASED] == numbers


@pytest.mark.parametrize("dump", RELEASED, ids=lambda path: path.stem)
def test_a_log_of_a_released_schema_opens_with_all_it_holds(dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(dump.read_text())
    log = open_log(path)
    assert list(log.records(KEY)) == [timed(1, 1.0, 2.0, when=1.0), failed(2, when=2.0), timed(1, 3.0, when=3.0)]
    assert log.best(KEY) == timed(1, 3.0, when=3.0)
    assert log.workload(KEY.task) == '{"program": "é"}'
    assert isinstance(log.targets()[AVX512.fingerprint], Target)
    assert verify(log).ok
    log.append([timed(4, 0.5)])
    assert log.best(KEY) == timed(4, 0.5)
    log.close()
