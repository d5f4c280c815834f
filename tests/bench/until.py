"""``python -m tests.bench.until FOLDER``: is the remaining gain that a run states right when it stops by it?

The folder holds what ``python -m tests.zoo --keep`` left of every model: the log, and the events of a run that ended by
itself and of one that went on to the end of its budget. Both are gone through slot by slot, and what the certificate
says after each is compared with what came of the model until the end: the weighted sum over its tasks of the fastest
config tried, by its last timing, in turn with the other finalists where it was one. So a run is judged at the moment
when it would stop, for several shares asked, by the expected gain (``mean``) and by the upper end of its interval
(``high``, as ``--until`` does).
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotune.tuning.job import FINAL, STAGE
from schedules.config import Config
from search.allocators.allocation import TaskState
from search.allocators.remaining import RemainingGain
from tuning_logs.sql_store import open_log

SHARES = (0.05, 0.03, 0.02, 0.01)
RULES = {"mean": "share", "high": "high"}
"""By what a run may stop → the field of the statement."""

RUNS = ("first", "further")
"""Parts of a kept run, in order."""


@dataclass(frozen=True)
class Trials:
    """What was tried of a task, in order.

    Attributes:
        template: whose space it is.
        latencies_s: as a run sees them; None for a failed trial.
        true_s: by the last timing of each config; infinite for a failed trial.
    """

    template: str
    latencies_s: tuple[float | None, ...]
    true_s: tuple[float, ...]


@dataclass(frozen=True)
class Statement:
    """What was stated when a run would stop and what came, as shares of the model's latency then.

    Attributes:
        model: its name.
        rule: by which it stops.
        asked: what the run was to end at.
        time: the moment over the whole time of tuning.
        now_s: seconds of tuning until it.
        expected, low, high: as stated, the interval at 80 %.
        realised: what all later trials brought.
    """

    model: str
    rule: str
    asked: float
    time: float
    now_s: float
    expected: float
    low: float
    high: float
    realised: float


def statements(folder: Path, model: str) -> Iterator[Statement]:
    """Those of one kept run; nothing is stated before every task had a slot."""
    tasks, slots = _events(folder, model)
    trials = _trials(folder / f"{model}.t.db")
    certificate = RemainingGain(np.random.default_rng(0))
    asked = {rule: sorted(SHARES, reverse=True) for rule in RULES}
    states = {key: _state(task, trials.get(key), 0) for key, task in tasks.items()}
    end_s = slots[-1][0]
    final_s = _model_s(tasks, trials, {key: len(each.latencies_s) for key, each in trials.items()})
    for now_s, slot in slots:
        states[slot["key"]] = _state(slot, trials.get(slot["key"]), slot["trials"])
        certificate.observe([*states.values()])
        if any(not state.trials and not state.exhausted for state in states.values()):
            continue
        facts = certificate.estimate([*states.values()]).to_data()
        left = 1.0 - final_s / _model_s(tasks, trials, {key: state.trials for key, state in states.items()})
        for rule, field in RULES.items():
            while asked[rule] and facts[field] < asked[rule][0]:
                stated = facts["share"], facts["low"], facts["high"]
                yield Statement(model, rule, asked[rule].pop(0), now_s / end_s, now_s, *stated, left)


def _events(folder: Path, model: str) -> tuple[dict[str, dict[str, Any]], list[tuple[float, dict[str, Any]]]]:
    """Tasks by key, and (seconds of tuning until then, event) of every slot of both runs."""
    tasks: dict[str, dict[str, Any]] = {}
    slots: list[tuple[float, dict[str, Any]]] = []
    for run in RUNS:
        before_s = slots[-1][0] if slots else 0.0
        for event in map(json.loads, (folder / f"{model}.{run}.events").read_text().splitlines()):
            if event["event"] == "tuning_began" and not tasks:
                tasks = {task["key"]: task for task in event["tasks"]}
            elif event["event"] == "slot_done":
                slots.append((before_s + event["elapsed_s"], event))
    return tasks, slots


def _trials(path: Path) -> dict[str, Trials]:
    """Task key → what the log has of it."""
    log = open_log(path)
    tried: dict[str, list[tuple[Config, float | None]]] = defaultdict(list)
    last: dict[str, dict[Config, float]] = defaultdict(dict)
    templates = {}
    for key in log.counts():
        if key.space.startswith("untuned"):
            continue
        templates[key.task] = key.space.rpartition("/")[0]
        for record in log.records(key):
            latency_s = record.measurement.latency_s if record.measurement.ok else None
            if record.provenance.get(STAGE) != FINAL:
                tried[key.task].append((record.config, latency_s))
            if latency_s is not None:
                last[key.task][record.config] = latency_s
    log.close()
    return {
        task: Trials(
            templates[task],
            tuple(latency_s for _, latency_s in configs),
            tuple(last[task].get(config, np.inf) for config, _ in configs),
        )
        for task, configs in tried.items()
    }


def _state(event: Mapping[str, Any], tried: Trials | None, count: int) -> TaskState:
    latencies_s = tried.latencies_s[:count] if tried else ()
    return TaskState(
        event["key"],
        tried.template if tried else "",
        event["weight"],
        0,
        1e-6 * event["bound_us"],
        latencies_s,
        (0.0,) * len(latencies_s),
        event.get("measured") == 0,
    )


def _model_s(tasks: Mapping[str, Mapping[str, Any]], trials: Mapping[str, Trials], counts: Mapping[str, int]) -> float:
    """The weighted sum of the tasks' best after so many trials; those without one are left out.

    Finalists of both runs were timed in turn, so the best of them stands for its task from when it was tried.
    """
    return sum(
        tasks[key]["weight"] * min(each.true_s[: counts[key]]) for key, each in trials.items() if counts.get(key, 0)
    )


def main() -> None:
    """Print a line for every rule and share."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.until", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    names = sorted(path.name.removesuffix(".t.db") for path in folder.glob("*.t.db"))
    found = [one for name in names for one in statements(folder, name)]
    for rule in RULES:
        for share in SHARES:
            print(summary([one for one in found if (one.rule, one.asked) == (rule, share)], len(names)), flush=True)


def summary(found: Sequence[Statement], models: int) -> str:
    """A line on statements of one rule and share."""
    if not found:
        return "no run stops"
    realised = np.array([one.realised for one in found])
    low, high = (np.array([getattr(one, edge) for one in found]) for edge in ("low", "high"))
    more = float(np.mean(realised > found[0].asked))
    return (
        f"until {found[0].asked:.0%} by {found[0].rule}: {len(found)} of {models} runs stop, after "
        f"{np.median([one.now_s for one in found]):.1f} s and {np.mean([one.time for one in found]):.0%} of the time; "
        f"{np.mean([one.expected for one in found]):.1%} expected, {realised.mean():.1%} realised (most "
        f"{realised.max():.1%}); {np.mean((low <= realised) & (realised <= high)):.0%} in the 80 % interval, "
        f"{np.mean(realised < low):.0%} below, {np.mean(realised > high):.0%} above; {more:.0%} left more than asked"
    )


if __name__ == "__main__":
    main()
