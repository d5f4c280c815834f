"""How a kept run is judged: what was left when it would stop, by what its configs turned out to take."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.artifact.make_plan import UNTUNED
from autotune.tuning.job import FINAL, STAGE
from research.kept_runs import KeptRun, collected, kept_runs, write_run
from research.until import RULES, SHARES, statements, summary
from schedules.lower import BASELINE
from tests.tuning_logs_tests.samples import KEY, failed, timed
from tuning_logs.sql_store import open_log

PER_RUN = 200
"""Trials of the only task in each of both runs."""


def keep(folder: Path, best_s: float) -> KeptRun:
    """A run, as it is read again: its task is at 1 ms from the second trial on, until it ends at ``best_s``."""
    log = open_log(folder / "m.t.db")
    log.append([failed(0, when=0.0), *(timed(number, 1e-3, when=number) for number in range(1, 2 * PER_RUN - 1))])
    found = timed(2 * PER_RUN - 1, 0.5 * best_s, when=2.0 * PER_RUN)  # measured once, and luckily
    final = replace(timed(2 * PER_RUN - 1, best_s, when=3.0 * PER_RUN), provenance={STAGE: FINAL})
    untuned = replace(timed(0, 9e-3, when=0.5), key=replace(KEY, space=UNTUNED.identity), config=BASELINE)  # no trial
    log.append([found, final, untuned])
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
    found = [one for one in statements(run) if one.now_s <= PER_RUN]
    assert found
    for one in found:
        assert one.realised == pytest.approx(1.0 - best_s / 1e-3)
        assert one.time == one.now_s / (2 * PER_RUN)
        assert one.low <= one.high
        assert getattr(one, RULES[one.rule].replace("share", "expected")) < one.asked


def test_a_run_stops_later_the_less_is_asked_and_by_the_upper_end(tmp_path: Path) -> None:
    run = keep(tmp_path, 1.0e-3)
    stops = {(one.rule, one.asked): one.now_s for one in statements(run)}
    for rule in RULES:
        moments = [stops[rule, share] for share in sorted(SHARES, reverse=True) if (rule, share) in stops]
        assert moments == sorted(moments)
    assert all(now_s >= stops["mean", share] for (rule, share), now_s in stops.items() if rule == "high")


def test_a_summary_counts_who_left_more_than_asked(tmp_path: Path) -> None:
    run = keep(tmp_path, 0.9e-3)
    found = [one for one in statements(run) if (one.rule, one.asked) == ("high", 0.05)]
    assert "1 of 1 runs stop" in summary(found, 1)
    assert "10.0% realised" in summary(found, 1)
    assert summary(found, 1).endswith("100% left more than asked")
    assert summary([], 1) == "no run stops"
