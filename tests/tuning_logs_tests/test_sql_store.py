"""SqlStore keeps the contract of every log, in a SQLite file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.store_suite import StoreSuite
from tuning_logs.sql_store import SqlStore, open_log


class TestSqliteStore(StoreSuite):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[SqlStore]:
        store = open_log(tmp_path / "tuning.db")
        yield store
        store.close()
