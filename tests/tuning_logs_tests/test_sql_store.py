"""TuningLog keeps the contract of every log, in a SQLite file and in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.store_suite import StoreSuite
from tests.tuning_logs_tests.samples import timed
from tuning_logs.sql_store import TuningLog, memory_log, open_log


class TestSqliteStore(StoreSuite):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[TuningLog]:
        store = open_log(tmp_path / "tuning.db")
        yield store
        store.close()


class TestMemoryLog(StoreSuite):
    @pytest.fixture
    def log(self) -> Iterator[TuningLog]:
        store = memory_log()
        yield store
        store.close()


def test_logs_in_memory_are_apart() -> None:
    first, second = memory_log(), memory_log()
    first.append([timed(1, 1.0)])
    assert len(list(first.records())) == 1
    assert list(second.records()) == []
