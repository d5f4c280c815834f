"""TuningLog keeps the contract of every log on a real PostgreSQL server; skipped where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import inspect

from schedules.vocabulary.errors import LogError
from tests.conformance.store_suite import StoreSuite
from tests.tuning_logs_tests.postgres_server import PostgresServer
from tests.tuning_logs_tests.samples import KEY, any_program, failed, timed
from tests.tuning_logs_tests.test_processes import check_killed_writers, check_many_writers
from tuning_logs.exchange import merge
from tuning_logs.maintenance import gc, stats, verify
from tuning_logs.schema import METADATA, VERSION
from tuning_logs.sql_store import TuningLog, open_log

pytestmark = pytest.mark.endurance


@pytest.fixture
def log(address: str) -> Iterator[TuningLog]:
    store = open_log(address)
    yield store
    store.close()


def name_of(address: str) -> str:
    return address.removeprefix("postgresql://postgres@/").split("?")[0]


class TestPostgresStore(StoreSuite):
    """Uses the module's ``log``."""


def test_a_new_log_has_the_tables_and_indices_of_the_code(log: TuningLog) -> None:
    inspector = inspect(log.database.engine)
    assert set(inspector.get_table_names()) == {*METADATA.tables, VERSION.name}
    for name, table in METADATA.tables.items():
        assert [column["name"] for column in inspector.get_columns(name)] == [column.name for column in table.columns]
        assert {index.name for index in table.indexes} <= {index["name"] for index in inspector.get_indexes(name)}


def test_many_writers_who_create_the_log_together(address: str) -> None:
    check_many_writers(address, processes=4, count=40)


def test_killed_writers(server: PostgresServer, address: str) -> None:
    check_killed_writers(address, kills=8, seed=1, settle=lambda: server.wait_until_alone(name_of(address)))


@pytest.mark.slow
def test_thirty_two_writers(address: str) -> None:
    check_many_writers(address, processes=32, count=500)


def test_care(log: TuningLog) -> None:
    log.append([timed(index, 1.0 + index, when=1.0) for index in range(5)] + [failed(9, when=1.0)])
    assert verify(log, any_program).ok
    assert gc(log, {"failed", "dominated"}, before=2.0, keep=2).dropped == {"failed": 1, "dominated": 3}
    figures = stats(log)
    assert (figures.records, figures.oldest) == (2, 1.0)
    assert figures.bytes > 0


def test_merge_with_a_file(log: TuningLog, tmp_path: Path) -> None:
    file = open_log(tmp_path / "tuning.db")
    file.append([timed(1, 1.0), timed(2, 2.0)])
    log.append([timed(2, 2.0), timed(3, 3.0)])
    assert merge(file, log, any_program).new_records == 1
    assert merge(log, file, any_program).new_records == 1
    assert sorted(map(repr, file.records())) == sorted(map(repr, log.records()))
    file.close()


def test_a_restarted_server_is_used_again(server: PostgresServer, log: TuningLog) -> None:
    log.append([timed(1, 1.0)])
    server.halt()
    with pytest.raises(LogError) as caught:
        log.append([timed(2, 1.0)])
    assert "\n" not in str(caught.value)
    server.start()
    log.append([timed(2, 0.5)])
    assert log.best(KEY) == timed(2, 0.5)


def test_a_database_shared_with_another_program(server: PostgresServer, address: str) -> None:
    server.sql(name_of(address), "CREATE TABLE studies (id INTEGER)")
    store = open_log(address)
    store.append([timed(1, 1.0)])
    store.close()


def test_another_programs_tables_are_left_alone(server: PostgresServer, address: str) -> None:
    server.sql(name_of(address), "CREATE TABLE records (id INTEGER)")
    with pytest.raises(LogError, match="not a tuning log"):
        open_log(address)


def test_a_schema_of_a_newer_version(server: PostgresServer, address: str, log: TuningLog) -> None:
    server.sql(name_of(address), "UPDATE tuning_log_version SET version_num = '9999'")
    with pytest.raises(LogError, match="has schema 9999"):
        open_log(address)


def test_a_read_only_database(server: PostgresServer, address: str, log: TuningLog) -> None:
    log.append([timed(1, 1.0)])
    server.sql("postgres", f"ALTER DATABASE {name_of(address)} SET default_transaction_read_only = on")
    reader = open_log(address)
    assert reader.best(KEY) == timed(1, 1.0)
    with pytest.raises(LogError, match="read-only"):
        reader.append([timed(2, 1.0)])
    reader.close()


def test_no_server_and_no_database_are_told_without_the_password(server: PostgresServer) -> None:
    for address in ("postgresql://me:secret@localhost:1/tuning", server.address("missing").replace("@", ":secret@")):
        with pytest.raises(LogError) as caught:
            open_log(address)
        message = str(caught.value)
        assert "\n" not in message
        assert "secret" not in message
        assert "check the address" in message
