from __future__ import annotations

import numpy as np
import pytest

from schedules.space import Space
from search.searchers.searcher import Result, SearchContext
from search.searchers.warm_restart import MAX_OWN_TRIALS, WarmRestart
from tests.conformance import spaces


def results(space: Space, count: int) -> tuple[Result, ...]:
    return tuple((config, spaces.timed(config)) for config in space.sample(count, np.random.default_rng(0)))


def restart(space: Space) -> WarmRestart:
    return WarmRestart("random", SearchContext(space, np.random.default_rng(0)))


def test_a_searcher_is_made_anew_when_siblings_have_doubled_their_results() -> None:
    space = spaces.enumerated()
    one = restart(space)
    assert one.searcher_after(0, []) is None
    assert one.searcher_after(2, [(space, results(space, 4))]) is not None
    assert one.searcher_after(2, [(space, results(space, 7))]) is None
    assert one.searcher_after(2, [(space, results(space, 4)), (space, results(space, 4))]) is not None


@pytest.mark.parametrize(
    ("space", "trials"), [(spaces.tiny(), 0), (spaces.enumerated(), MAX_OWN_TRIALS + 1)], ids=["small space", "late"]
)
def test_siblings_cannot_help_a_small_space_or_a_task_with_many_trials(space: Space, trials: int) -> None:
    one = restart(space)
    assert not one.wanted(trials)
    assert one.searcher_after(trials, [(spaces.enumerated(), results(spaces.enumerated(), 20))]) is None
