from __future__ import annotations

from pathlib import Path

from autotune.replay.comparison import Replay, ReplayRules
from autotune.replay.tables import allocator_table, evaluator_table, geometric_mean, searcher_table, spread


def test_a_seed_decides_everything(path: Path) -> None:
    rules = ReplayRules(seeds=3, trials=24, processes=1)

    def tables() -> list[list[list[str]]]:
        board = Replay([path], rules)
        searchers = searcher_table(board, ["adaptive", "random"]).rows
        return [
            [row[:-1] for row in searchers],  # the last column is seconds of thinking
            evaluator_table(board, ["adaptive", "fixed", "time"]).rows,
            [row[:-1] for row in allocator_table(board, ["round-robin", "sequential"]).rows],
        ]

    assert tables() == tables()


def test_the_oracle_has_the_least_area(path: Path) -> None:
    board = Replay([path], ReplayRules(seeds=2, trials=32, processes=1))
    found = allocator_table(board, ["expected-cut", "round-robin", "sequential", "gradient"]).data
    least = min(facts["area_geometric_mean_s"] for name, facts in found.items() if name != "oracle")
    assert found["oracle"]["area_geometric_mean_s"] <= 1.02 * least


def test_summaries() -> None:
    assert abs(geometric_mean([1.0, 100.0]) - 10.0) < 1e-9
    assert spread([1, 2, 3, 4, 5]) == "3 (2–4)"
