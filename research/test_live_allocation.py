"""Tests of research.live_allocation: what counts as near, and what a run's latency is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from research.live_allocation import curve, seconds, slots
from schedules.config import Config

SLOW, FAST, LUCKY = (Config("conv2d/1", (("tile", number),)) for number in (1, 2, 3))
LATENCY_S = {("a", SLOW): 2.0, ("a", FAST): 1.0, ("a", LUCKY): 1.5, ("b", SLOW): 1.0, ("b", FAST): 0.98}


def test_a_curve_begins_when_every_task_has_a_kernel_and_never_rises() -> None:
    run = {"a": [(1.0, SLOW), (3.0, FAST), (5.0, LUCKY)], "b": [(2.0, SLOW)]}
    assert curve(run, LATENCY_S) == [(2.0, 3.0), (3.0, 2.0), (5.0, 2.0)]


def test_seconds_are_those_to_the_best_of_all_runs_and_the_budget_if_a_run_never_comes_near() -> None:
    runs = {
        "first": {"a": [(1.0, SLOW), (3.0, FAST)], "b": [(2.0, SLOW), (9.0, FAST)]},
        "second": {"a": [(1.0, LUCKY)], "b": [(4.0, FAST)]},
    }
    first, second = seconds(runs, LATENCY_S, 60.0)
    assert first == [3.0, 3.0, 9.0]  # 2.0 is 1.01 times the least, 1.98
    assert second == [60.0, 60.0, 60.0]


def test_slots_are_read_from_the_events(tmp_path: Path) -> None:
    events = [
        {"event": "tuning_began"},
        {"event": "slot_done", "key": "a", "trials": 4, "elapsed_s": 1.5},
    ]
    path = tmp_path / "run.events"
    path.write_text("\n".join(map(json.dumps, events)))
    assert list(slots(path)) == [("a", 4, pytest.approx(1.5))]
