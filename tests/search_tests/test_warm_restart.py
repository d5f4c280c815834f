"""When a searcher is made anew from the results of sibling tasks."""

from __future__ import annotations

import numpy as np

from schedules.space import Knob, Space
from search.searcher import SearchContext
from search.warm_restart import MAX_OWN_TRIALS, MIN_GROWTH, SMALL_SPACE, WarmRestart
from tuning_logs.measurement import Measurement

SPACE = Space("toy", 1, (Knob("x", tuple(range(8))), Knob("y", tuple(range(8)))))
SMALL = Space("toy", 1, (Knob("x", tuple(range(SMALL_SPACE))),))


def restart(space: Space = SPACE) -> WarmRestart:
    return WarmRestart("adaptive", SearchContext(space, np.random.default_rng(0)))


def siblings(count: int) -> tuple[tuple[Space, tuple]]:
    results = tuple((SPACE.config(row), Measurement((1e-5 + 1e-6 * index,))) for index, row in enumerate(SPACE.rows))
    return ((SPACE, results[:count]),)


def test_no_results_no_restart() -> None:
    assert restart().searcher_after(0, ()) is None
    assert restart().searcher_after(0, ((SPACE, ()),)) is None


def test_results_of_siblings_make_a_new_searcher_that_starts_near_their_best() -> None:
    searcher = restart().searcher_after(0, siblings(16))
    assert searcher is not None
    assert len(searcher.ask(4)) == 4


def test_only_when_they_have_grown_enough_since() -> None:
    each = restart()
    assert each.searcher_after(0, siblings(8)) is not None
    assert each.searcher_after(2, siblings(int(MIN_GROWTH * 8) - 1)) is None
    assert each.searcher_after(2, siblings(int(MIN_GROWTH * 8))) is not None


def test_never_for_a_task_with_many_trials_or_a_small_space() -> None:
    assert restart().searcher_after(MAX_OWN_TRIALS + 1, siblings(16)) is None
    assert not restart(SMALL).wanted(0)
    assert restart(SMALL).searcher_after(0, siblings(16)) is None
