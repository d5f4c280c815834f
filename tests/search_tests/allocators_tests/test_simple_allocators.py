from __future__ import annotations

import numpy as np
import pytest

from search.allocators.simple_allocators import FlopProportional, RandomAllocator, RoundRobin, Sequential
from tests.conformance.allocator_suite import fresh, run


def test_round_robin_takes_turns() -> None:
    served = run(RoundRobin(), fresh(3), 7)
    assert served == ["task0", "task1", "task2", "task0", "task1", "task2", "task0"]


def test_sequential_finishes_a_quota_first() -> None:
    assert run(Sequential(quota=16), fresh(3), 7) == [*["task0"] * 2, *["task1"] * 2, *["task2"] * 2, "task0"]


def test_random_serves_all() -> None:
    assert set(run(RandomAllocator(np.random.default_rng(0)), fresh(3), 30)) == {"task0", "task1", "task2"}


def test_flop_proportional_shares() -> None:
    served = run(FlopProportional(), fresh(3), 140)  # weight × flop: 1, 4, 9
    assert [served.count(f"task{index}") for index in range(3)] == pytest.approx([10, 40, 90], abs=3)
