from __future__ import annotations

import numpy as np
import pytest

from schedules.errors import UsageError
from search.allocator_catalog import ALLOCATORS, make_allocator
from tests.conformance.allocator_suite import AllocatorSuite, fresh, run


class TestAllocators(AllocatorSuite):
    @pytest.fixture(params=ALLOCATORS)
    def allocator_name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


def test_unknown_allocator_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'round-robin'"):
        make_allocator("roundrobin", np.random.default_rng(0))


def test_round_robin_takes_turns() -> None:
    served = run(make_allocator("round-robin", np.random.default_rng(0)), fresh(3), 7)
    assert served == ["task0", "task1", "task2", "task0", "task1", "task2", "task0"]
