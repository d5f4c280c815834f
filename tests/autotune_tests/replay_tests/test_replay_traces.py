"""Traces and replay on a made-up task: what is written is read, and the same seed gives the same outcome."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.cli.main import main
from autotune.measure.evaluator import make_evaluator
from autotune.replay.calibration_replay import calibrate
from autotune.replay.comparison import Replay, ReplayRules
from autotune.replay.recorded_runs import ReplayBench
from autotune.replay.tables import allocator_table, evaluator_table, searcher_table
from autotune.replay.trace import Trace, TraceFile, corrected, load_traces, recorded_space, save_traces
from schedules.errors import UsageError
from schedules.space import Knob
from schedules.task import Task

KNOBS = (Knob("tile", (1, 2, 4, 8, 16, 32)), Knob("order", ("ij", "ji")), Knob("split", ((1, 4), (2, 2), (4, 1))))


def trace(key: str = "a", scale: float = 1e-4, seed: int = 0) -> Trace:
    """36 configs less a few; one fails; two are the same code; noise of 1 % and a drifting clock."""
    rng = np.random.default_rng(seed)
    rows = np.array(
        [(i, j, k) for i in range(6) for j in range(2) for k in range(3) if (i + j + k) % 7], dtype=np.int32
    )
    usual = scale * (1 + 0.3 * np.abs(rows[:, 0] - 3) + 0.2 * rows[:, 1] + 0.1 * rows[:, 2])
    usual[1] = usual[0]
    drift = np.repeat(1 + 0.1 * rng.integers(2, size=(len(rows), 3, 1)), 8, axis=2)
    runs = usual[:, None, None] * drift * (1 + 0.01 * np.abs(rng.standard_normal((len(rows), 3, 8))))
    errors = np.full(len(rows), -1, dtype=np.int8)
    errors[5], runs[5] = 2, np.nan
    codes = np.arange(len(rows))
    codes[1], runs[1] = 0, runs[0]
    task = Task(key, f"fused_{key}", "toy", "toy", ((4, 4), (4, 4)), ("float32", "float32"), (), 1000, 128, 2)
    space = recorded_space("toy", 1, KNOBS, rows, rows[:, :1] * 1.5, ("tile_bytes",), (4, 2))
    count = len(rows)
    true_s = np.where(errors < 0, corrected(runs, drift), np.nan)
    return Trace(
        task, space, False, scale / 2, 30 * scale, np.full(count, 0.1), np.full(count, 1e-3), errors, codes, true_s,
        runs, drift,
    )  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "toy.npz"
    save_traces(found, TraceFile("toy", "a machine", (trace("a"), trace("b", 3e-4, 1))))
    return found


def test_a_trace_is_read_as_it_was_written(path: Path) -> None:
    written, (read, _) = trace(), load_traces(path).traces
    assert read.task == written.task
    assert read.space.knobs == written.space.knobs
    assert read.space.initial == written.space.initial
    np.testing.assert_array_equal(read.space.rows, written.space.rows)
    np.testing.assert_allclose(read.space.row_features(read.space.rows), written.space.row_features(read.space.rows))
    np.testing.assert_allclose(read.runs_s, written.runs_s, rtol=3e-4)
    np.testing.assert_allclose(read.controls, written.controls, rtol=3e-4)
    np.testing.assert_array_equal(read.true_s, written.true_s)


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.npz"
    bad.write_bytes(b"PK nonsense")
    for path, words in ((bad, "is not a trace"), (tmp_path / "none.npz", "no trace")):
        with pytest.raises(UsageError, match=words):
            load_traces(path)


def test_a_recorded_space_offers_only_what_was_recorded() -> None:
    space = trace().space
    every = np.array([(i, j, k) for i in range(6) for j in range(2) for k in range(3)], dtype=np.int32)
    recorded = {tuple(row) for row in space.rows.tolist()}
    assert space.constraint is not None
    allowed = space.constraint(space.columns(every))
    assert [tuple(row) in recorded for row in every.tolist()] == allowed.tolist()
    assert [space.index(space.config(row)) for row in space.rows] == list(range(len(space.rows)))


def test_the_true_latency_knows_the_machines_speed() -> None:
    found = trace()
    usual = 1e-4 * (1 + 0.3 * abs(found.space.rows[0, 0] - 3) + 0.2 * found.space.rows[0, 1])
    assert found.true_s[0] == pytest.approx(usual, rel=0.15)
    drifting = np.array([[[1.0, 1.0], [1.1, 1.1]]])
    assert corrected(2e-3 * drifting, drifting)[0] == pytest.approx(2e-3)


def test_equal_code_is_timed_once_and_failures_are_measurements() -> None:
    found = trace()
    bench = ReplayBench(found, make_evaluator("fixed"), np.random.default_rng(0))
    configs = [found.space.config(row) for row in found.space.rows]
    first, second, broken = bench.measure(configs[0]), bench.measure(configs[1]), bench.measure(configs[5])
    assert second.latencies_s == first.latencies_s
    assert (second.run_s, bench.runs) == (0.0, 500)
    assert first.run_s == pytest.approx(500 * found.runs_s[0].mean() + 1e-3, rel=0.02)
    assert broken.error == "timeout"


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


def test_the_command_prints_and_plots(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = path.with_suffix(".html")
    names = ["--evaluator", "adaptive,fixed", "--cost-model", "boosted", "--allocator", "round-robin,expected-cut"]
    code = main(["replay", str(path), *names, "--seeds", "2", "--processes", "1", "--plot", str(page), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["traces"], told["seeds"], len(told["tables"])) == (0, ["toy"], 2, 3)
    assert "Allocators" in page.read_text()


def test_the_command_names_what_is_wrong(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(path), "--searcher", "rondom"]) == 2
    assert "did you mean 'random'" in capsys.readouterr().err
    assert main(["replay", str(path), "--near", "7"]) == 2
    assert "share between 0 and 1" in capsys.readouterr().err


def test_runs_beside_others_are_freed_of_what_all_of_them_met() -> None:
    found = trace()
    rng = np.random.default_rng(3)
    slow = np.where(np.arange(len(found.true_s)) % 2, 1.0, 1.3)  # two batches, one while the clock was low
    alone = 1 + 0.3 * rng.random((2, 3, 8))  # controls with troubles of their own
    controls = alone[np.arange(len(slow)) % 2]
    disturbed = replace(found, runs_s=found.true_s[:, None, None] * slow[:, None, None] * np.ones((1, 3, 8)))
    disturbed = replace(disturbed, controls=controls)
    for index in (0, 3, 7):
        runs = disturbed.levelled(index, 0)
        assert runs == pytest.approx(found.true_s[index] * np.ones(24), rel=1e-6)


def test_calibration_takes_a_config_that_was_slow_from_its_only_pass() -> None:
    found = trace()
    runs = found.runs_s.copy()
    runs[::2, 1:] = np.nan
    outcome = calibrate(replace(found, runs_s=runs), "gaussian-process", 0, 8)
    assert outcome is not None
    assert np.isfinite(outcome.quality.error)
