"""MemoryStore keeps the contract of every log."""

import pytest

from tests.conformance.store_suite import StoreSuite
from tuning_logs.memory_store import MemoryStore


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def log(self) -> MemoryStore:
        return MemoryStore()
