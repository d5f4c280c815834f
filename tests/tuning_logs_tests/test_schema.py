"""A new log has the tables of the newest released schema, and a log of every released schema still opens."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from schedules.target import Target
from tests.tuning_logs_tests.samples import AVX512, KEY, RELEASED, any_program, failed, load, timed
from tuning_logs.maintenance import verify
from tuning_logs.schema import HEAD
from tuning_logs.sql_store import TuningLog, open_log


def described(log: TuningLog) -> dict[str, object]:
    """Everything SQLAlchemy sees of a log's tables, and the conditions of its indices, which it does not show."""
    inspector = inspect(log.database.engine)
    tables: dict[str, object] = {}
    for name in sorted(inspector.get_table_names()):
        columns = [(c["name"], str(c["type"]), c["nullable"], c["primary_key"]) for c in inspector.get_columns(name)]
        indices = sorted((i["name"], i["column_names"], i["unique"]) for i in inspector.get_indexes(name))
        keys = sorted((k["constrained_columns"], k["referred_table"]) for k in inspector.get_foreign_keys(name))
        tables[name] = (
            columns,
            indices,
            keys,
            inspector.get_unique_constraints(name),
            inspector.get_pk_constraint(name),
        )
    with log.database.engine.connect() as connection:
        sql = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE name LIKE 'records_by_%'")).all()
    return tables | {name: statement.partition(" WHERE ")[2] for name, statement in sql}


def test_a_new_log_has_the_tables_of_the_newest_release(tmp_path: Path) -> None:
    new = open_log(tmp_path / "new.db")
    released = open_log(load(RELEASED[-1], tmp_path / "released.db"))
    assert described(new) == described(released)
    assert [described(new)[f"records_by_{name}"] for name in ("error", "speed")] == [
        "error IS NOT NULL",
        "latency_s IS NOT NULL",
    ]
    new.close()
    released.close()


def test_every_release_is_kept_as_a_dump() -> None:
    assert [path.stem for path in RELEASED] == [f"{number:04}" for number in range(1, int(HEAD) + 1)]


@pytest.mark.parametrize("dump", RELEASED, ids=lambda path: path.stem)
def test_a_log_of_a_released_schema_opens_with_all_it_holds(dump: Path, tmp_path: Path) -> None:
    log = open_log(load(dump, tmp_path / "tuning.db"))
    assert list(log.records(KEY)) == [timed(1, 1.0, 2.0, when=1.0), failed(2, when=2.0), timed(1, 3.0, when=3.0)]
    assert log.best(KEY) == timed(1, 3.0, when=3.0)
    assert log.workload(KEY.task) == '{"program": "é"}'
    assert isinstance(log.targets()[AVX512.fingerprint], Target)
    assert verify(log, any_program).ok
    log.append([timed(4, 0.5)])
    assert log.best(KEY) == timed(4, 0.5)
    log.close()
