"""One PostgreSQL server for the whole session, started by the first test that needs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tuning_logs_tests import postgres_server
from tests.tuning_logs_tests.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """Skips its tests, with the reason, where none can be started."""
    if reason := postgres_server.missing():
        pytest.skip(reason)
    started = PostgresServer()
    yield started
    started.stop()


@pytest.fixture
def address(server: PostgresServer) -> str:
    """URL of a new, empty database."""
    return server.new_database()
