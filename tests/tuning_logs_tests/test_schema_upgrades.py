"""An older log is upgraded once, and an upgrade that fails changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect, text

from schedules.vocabulary.errors import LogError
from tests.tuning_logs_tests.samples import KEY, RELEASED, load
from tuning_logs import schema, schema_upgrades
from tuning_logs.schema import HEAD
from tuning_logs.sql_store import open_log


def test_an_older_log_is_brought_along_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = load(RELEASED[0], tmp_path / "tuning.db")
    ran = []

    def add_column(connection: Connection) -> None:
        ran.append(connection.execute(text("ALTER TABLE records ADD COLUMN power_w DOUBLE")))

    monkeypatch.setattr(schema_upgrades, "UPGRADES", (*schema.UPGRADES, add_column))
    monkeypatch.setattr(schema_upgrades, "HEAD", f"{int(HEAD) + 1:04}")
    for _ in range(2):
        log = open_log(path)
        assert len(list(log.records(KEY))) == 3
        log.close()
    assert len(ran) == 1


def test_an_upgrade_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = load(RELEASED[0], tmp_path / "tuning.db")

    def fail(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE records ADD COLUMN power_w DOUBLE"))
        connection.execute(text("ALTER TABLE nothing ADD COLUMN x DOUBLE"))

    with monkeypatch.context() as patched:
        patched.setattr(schema_upgrades, "UPGRADES", (*schema.UPGRADES, fail))
        patched.setattr(schema_upgrades, "HEAD", f"{int(HEAD) + 1:04}")
        with pytest.raises(LogError):
            open_log(path)
    log = open_log(path)
    assert "power_w" not in {column["name"] for column in inspect(log.database.engine).get_columns("records")}
    log.close()
