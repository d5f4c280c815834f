"""How a kept run is judged: what was left when it would stop, by what its configs turned out to take."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.artifact.make_plan import UNTUNED
from autotune.tuning.job import FINAL, STAGE
from research.kept_runs import KeptRun, collected, kept_runs, write_run
from research.until import SHARES, chosen_factor, looks, most_misses, stop, summary
from schedules.lower import BASELINE
from tests.tuning_logs_tests.samples import KEY, failed, timed
from tuning_logs.sql_store import open_log

PER_RUN = 200
"""Trials of the only task in each of both runs."""


def keep(folder: Path, best_s: float) -> KeptRun:
    """A run, as it is read again: its task is at 1 ms from the second trial on, until it ends at ``best_s``."""
    log = open_log(folder / "m.t.db")
    log.append([failed(0, when=0.0), *(timed(number, 1e-3, when=number) for number in range(1, 2 * PER_RUN - 1))])
    lucky = timed(2 * PER_RUN - 1, 0.5 * best_s, when=2.0 * PER_RUN)  # measured once, and luckily
    final = replace(timed(2 * PER_RUN - 1, best_s, when=3.0 * PER_RUN), provenance={STAGE: FINAL})
    untuned = replace(timed(0, 9e-3, when=0.5), key=replace(KEY, space=UNTUNED.identity), config=BASELINE)  # no trial
    log.append([lucky, final, untuned])
    log.close()
    task = {"key": KEY.task, "weight": 1, "bound_us": 500.0}
    for part, start in (("first", 0), ("further", PER_RUN)):
        said = [{"event": "tuning_began", "tasks": [{**task, "trials": start}]}]
        for trials in range(start + 8, start + PER_RUN + 1, 8):
            slot = {"event": "slot_done", "measured": 8, "elapsed_s": float(trials - start)}
            said.append({**slot, **task, "trials": trials})
        (folder / f"{part}.events").write_text("\n".join(map(json.dumps, said)))
    events = [folder / f"{part}.events" for part in ("first", "further")]
    write_run(collected("m", "today", folder / "m.t.db", events), folder / "m.json.gz")
    (run,) = kept_runs(folder)
    return run


@pytest.mark.parametrize("best_s", [0.9e-3, 1.0e-3])
def test_what_was_left_is_what_the_best_turned_out_to_take(tmp_path: Path, best_s: float) -> None:
    run = keep(tmp_path, best_s)
    assert (run.model, run.made) == ("m", "today")
    assert [len(task.latencies_s) for task in run.tasks.values()] == [2 * PER_RUN]
    seen = [one for one in looks(run) if one.now_s <= PER_RUN]
    assert seen
    for one in seen:
        assert one.left == pytest.approx(1.0 - best_s / 1e-3)
        assert one.time == pytest.approx(one.now_s / (2 * PER_RUN))


def test_a_run_stops_later_the_less_is_asked_and_the_larger_the_factor(tmp_path: Path) -> None:
    seen = [*looks(keep(tmp_path, 1.0e-3))]
    moments = [stop(seen, share).now_s for share in sorted(SHARES, reverse=True)]
    assert moments == sorted(moments)
    assert stop(seen, 0.05, 1.0).now_s < stop(seen, 0.05, 4.0).now_s


def test_a_summary_counts_who_left_more_than_asked(tmp_path: Path) -> None:
    seen = [[*looks(keep(tmp_path, 0.9e-3))]]
    assert "1 of 1 runs leave more than asked (at most 100% of runs)" in summary(seen, 0.05)
    assert "10.0% at most" in summary(seen, 0.05)


def test_a_factor_needs_enough_runs_without_a_miss(tmp_path: Path) -> None:
    seen = [*looks(keep(tmp_path, 1.0e-3))]
    assert most_misses(0, 22) < 0.1 < most_misses(0, 21)
    assert chosen_factor([seen] * 21) is None
    assert chosen_factor([seen] * 22) == pytest.approx(0.55)
    (tmp_path / "bad").mkdir()
    bad = [*looks(keep(tmp_path / "bad", 0.9e-3))]
    assert chosen_factor([*[seen] * 90, *[bad] * 20]) is None
