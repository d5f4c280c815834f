from __future__ import annotations

import numpy as np
import pytest

from schedules.vocabulary.errors import UsageError
from search.allocators.allocator_catalog import ALLOCATORS, make_allocator
from tests.conformance.allocator_suite import AllocatorSuite


class TestAllocators(AllocatorSuite):
    @pytest.fixture(params=ALLOCATORS)
    def allocator_name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture(autouse=True)
    def short_chains(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """DynaTune's protocol is the same with shorter chains, and the suite is much faster."""
        monkeypatch.setattr("costmodels.curve.STEPS", 16)
        monkeypatch.setattr("costmodels.curve.AGAIN", 16)
        monkeypatch.setattr("costmodels.curve.ROUNDS", 2)


@pytest.mark.parametrize(
    ("wrong", "near"), [("roundrobin", "round-robin"), ("share-per-seconds", "share-per-second")], ids=["typo", "gone"]
)
def test_unknown_allocator_names_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"did you mean '{near}"):
        make_allocator(wrong, np.random.default_rng(0))
