from __future__ import annotations

import pytest

from schedules.vocabulary.errors import UsageError
from search.allocators.allocation import TaskState, open_tasks, slot_trials, state_of
from search.allocators.simple_allocators import Sequential
from tests.search_tests.states import known


def test_a_task_has_short_slots_first() -> None:
    assert [slot_trials((2, 2, 4), trials, 8) for trials in (0, 2, 4, 8, 16)] == [2, 2, 4, 8, 8]
    assert slot_trials((2, 2, 4), 5, 8) == 3  # a slot that was cut short is finished
    assert slot_trials((2, 4), 0, 1) == 1  # no slot is longer than a batch
    assert slot_trials((), 0, 8) == 8


def test_a_state_knows_its_best_and_checks_its_costs() -> None:
    state = known("a", [None, 3e-3, 2e-3, 4e-3])
    assert (state.best_s, state.trials) == (2e-3, 4)
    assert known("a", [None]).best_s is None
    with pytest.raises(UsageError, match="one cost per trial"):
        TaskState("a", "conv", 1, 1, 0.0, (1e-3,))


def test_tasks_are_found_by_key_and_exhausted_ones_are_not_open() -> None:
    states = [known("a", []), known("b", [], exhausted=True)]
    assert open_tasks(states) == states[:1]
    assert state_of("b", states) is states[1]


def test_an_allocator_explains_itself_by_its_documentation() -> None:
    why = Sequential().why("a", [known("a", [])])
    assert why.startswith("one task after the other")
    assert not why.endswith(".")
