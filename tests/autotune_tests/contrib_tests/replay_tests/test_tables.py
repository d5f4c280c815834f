from __future__ import annotations

from pathlib import Path

from autotune.contrib.replay.comparison import Replay, ReplayRules
from autotune.contrib.replay.tables import allocator_table, evaluator_table, geometric_mean, searcher_table, spread
from autotune.contrib.replay.trace import TraceFile
from research.trace_writer import save_traces
from tests.autotune_tests.contrib_tests.replay_tests.made_up import trace


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
    by_allocator = allocator_table(board, ["share-per-second", "round-robin", "sequential", "gradient"]).data
    least = min(facts["area_geometric_mean_s"] for name, facts in by_allocator.items() if name != "oracle")
    assert by_allocator["oracle"]["area_geometric_mean_s"] <= least
    for share, bound in by_allocator["oracle"]["within"].items():
        assert all(
            bound["geometric_mean_s"] <= facts["within"][share]["geometric_mean_s"] for facts in by_allocator.values()
        )


def test_searchers_are_told_by_share_and_task(path: Path) -> None:
    board = Replay([path], ReplayRules(seeds=2, trials=16, processes=1, near=(1.5, 1.01)))
    table = searcher_table(board, ["random", "coordinate"])
    assert [row[:2] for row in table.rows] == [
        [name, share] for name in ("random", "coordinate") for share in ("50%", "1%")
    ]
    within = table.data["random"]["within"]
    assert set(within["1%"]["median_trials"]) == {"toy/0", "toy/1"}
    assert within["50%"]["geometric_mean"] <= within["1%"]["geometric_mean"]


def test_a_portfolio_is_one_model_and_is_compared_with_its_models_one_by_one(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.npz"
    save_traces(other, TraceFile("other", "a machine", (trace("a"), trace("c", 2e-4, 2))))
    rules = ReplayRules(seeds=2, trials=16, processes=1, portfolio=True, weights={"other": 3})
    table = allocator_table(Replay([path, other], rules), ["share-per-second"])
    assert list(table.data) == ["share-per-second", "one by one", "oracle"]
    assert list(table.data["oracle"]["area_s"]) == ["toy + other"]


def test_summaries() -> None:
    assert abs(geometric_mean([1.0, 100.0]) - 10.0) < 1e-9
    assert spread([1, 2, 3, 4, 5]) == "3 (2–4)"
