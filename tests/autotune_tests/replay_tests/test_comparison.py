from __future__ import annotations

from pathlib import Path

import pytest

from autotune.replay.comparison import Replay, ReplayRules
from schedules.errors import UsageError


def test_outcomes_lie_by_name_and_place_one_for_each_seed(path: Path) -> None:
    board = Replay([path], ReplayRules(seeds=3, trials=8, processes=1))
    assert [board.label(place) for place in board.tasks()] == ["toy/0", "toy/1"]
    found = board.outcomes("searcher", board.tasks(), ["random"])
    assert {place: len(outcomes) for place, outcomes in found["random"].items()} == {(0, 0): 3, (0, 1): 3}


def test_two_processes_find_what_one_finds(path: Path) -> None:
    found = [
        Replay([path], ReplayRules(seeds=2, trials=8, processes=processes)).outcomes("evaluator", [(0, 0)], ["time"])
        for processes in (1, 2)
    ]
    assert found[0] == found[1]


def test_no_file_is_refused() -> None:
    with pytest.raises(UsageError, match="no trace given"):
        Replay([], ReplayRules())
