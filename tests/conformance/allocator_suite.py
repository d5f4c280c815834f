"""What every Allocator owes. Subclass, and give an ``allocator_name`` fixture with the names to test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from search.allocators.allocation import Allocator, TaskState
from search.allocators.allocator_catalog import make_allocator


def fresh(count: int) -> list[TaskState]:
    """Tasks of two templates that nobody has tried yet."""
    return [
        TaskState(f"task{index}", ("conv", "dense")[index % 2], 1 + index, 10**8 * (1 + index), 2e-4 * (1 + index))
        for index in range(count)
    ]


def tried(state: TaskState, rng: np.random.Generator, trials: int = 8, valid: bool = True) -> TaskState:
    """``state`` after one more slot of ``trials``."""
    latencies = tuple(float(state.bound_s * (1.2 + rng.exponential())) if valid else None for _ in range(trials))
    return replace(
        state, latencies_s=state.latencies_s + latencies, spent_s=state.spent_s + tuple(0.08 for _ in range(trials))
    )


def run(allocator: Allocator, states: list[TaskState], slots: int, valid: bool = True) -> list[str]:
    """Deal ``slots`` slots, measuring made-up latencies; the keys served."""
    rng, served = np.random.default_rng(0), []
    for _ in range(slots):
        key = allocator.next(states)
        if key is None:
            break
        served.append(key)
        states = [tried(state, rng, valid=valid) if state.key == key else state for state in states]
    return served


class AllocatorSuite:
    """The protocol's promises."""

    def make(self, name: str, seed: int = 0) -> Allocator:
        return make_allocator(name, np.random.default_rng(seed))

    def test_is_an_allocator(self, allocator_name: str) -> None:
        assert isinstance(self.make(allocator_name), Allocator)

    def test_serves_known_tasks(self, allocator_name: str) -> None:
        served = run(self.make(allocator_name), fresh(4), 16)
        assert len(served) == 16
        assert set(served) <= {"task0", "task1", "task2", "task3"}

    def test_says_why(self, allocator_name: str) -> None:
        allocator, states = self.make(allocator_name), fresh(3)
        rng = np.random.default_rng(1)
        for _ in range(8):
            key = allocator.next(states)
            assert key is not None
            words = allocator.why(key, states)
            assert words
            assert "\n" not in words
            assert not words.endswith(".")
            states = [tried(state, rng) if state.key == key else state for state in states]

    def test_nothing_to_serve(self, allocator_name: str) -> None:
        assert self.make(allocator_name).next([]) is None

    def test_exhausted_tasks_get_nothing(self, allocator_name: str) -> None:
        states = [replace(state, exhausted=state.key != "task2") for state in fresh(4)]
        assert set(run(self.make(allocator_name), states, 5)) == {"task2"}
        done = [replace(state, exhausted=True) for state in states]
        assert self.make(allocator_name).next(done) is None

    def test_one_task(self, allocator_name: str) -> None:
        assert run(self.make(allocator_name), fresh(1), 3) == ["task0"] * 3

    def test_tasks_without_any_valid_trial(self, allocator_name: str) -> None:
        served = run(self.make(allocator_name), fresh(3), 6, valid=False)
        assert set(served) <= {"task0", "task1", "task2"}

    def test_same_seed_same_slots(self, allocator_name: str) -> None:
        assert run(self.make(allocator_name, 5), fresh(4), 12) == run(self.make(allocator_name, 5), fresh(4), 12)

    def test_tasks_may_vanish_between_slots(self, allocator_name: str) -> None:
        allocator, states = self.make(allocator_name), fresh(4)
        run(allocator, states, 6)
        assert allocator.next(states[1:]) in {"task1", "task2", "task3"}

    @pytest.mark.parametrize("bound_s", [0.0, 1e-12])
    def test_bounds_that_say_nothing(self, allocator_name: str, bound_s: float) -> None:
        rng = np.random.default_rng(1)
        states = [replace(tried(state, rng), bound_s=bound_s) for state in fresh(3)]
        assert self.make(allocator_name).next(states) in {"task0", "task1", "task2"}
