"""What is written is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autotune.contrib.replay.trace import load_traces
from research.trace_writer import corrected
from schedules.vocabulary.errors import LogError
from tests.autotune_tests.contrib_tests.replay_tests.made_up import trace


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
    for path, words in ((bad, "is not a trace"), (tmp_path / "none.npz", "does not exist; give a trace")):
        with pytest.raises(LogError, match=words):
            load_traces(path)


def test_a_recorded_space_offers_only_what_was_recorded() -> None:
    space = trace().space
    every = np.array([(i, j, k) for i in range(6) for j in range(2) for k in range(3)], dtype=np.int32)
    recorded = {tuple(row) for row in space.rows.tolist()}
    assert [tuple(row) in recorded for row in every.tolist()] == space.allowed(every).tolist()
    assert [space.index(space.config(row)) for row in space.rows] == list(range(len(space.rows)))


def test_the_true_latency_knows_the_machines_speed() -> None:
    recorded = trace()
    usual = 1e-4 * (1 + 0.3 * abs(recorded.space.rows[0, 0] - 3) + 0.2 * recorded.space.rows[0, 1])
    assert recorded.true_s[0] == pytest.approx(usual, rel=0.15)
    drifting = np.array([[[1.0, 1.0], [1.1, 1.1]]])
    assert corrected(2e-3 * drifting, drifting)[0] == pytest.approx(2e-3)


def test_runs_beside_others_are_freed_of_what_all_of_them_met() -> None:
    recorded = trace()
    rng = np.random.default_rng(3)
    slow = np.where(np.arange(len(recorded.true_s)) % 2, 1.0, 1.3)  # two batches, one while the clock was low
    alone = 1 + 0.3 * rng.random((2, 3, 8))  # controls with troubles of their own
    controls = alone[np.arange(len(slow)) % 2]
    disturbed = replace(recorded, runs_s=recorded.true_s[:, None, None] * slow[:, None, None] * np.ones((1, 3, 8)))
    disturbed = replace(disturbed, controls=controls)
    for index in (0, 3, 7):
        runs = disturbed.levelled(index, 0)
        assert runs == pytest.approx(recorded.true_s[index] * np.ones(24), rel=1e-6)
