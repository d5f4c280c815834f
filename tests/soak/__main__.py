"""``python -m tests.soak --minutes 120``: hours on a machine that misbehaves; exit code 1 if anything is wrong."""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.kills.campaign import Campaign, Outcome
from tests.soak.residents import Held
from tests.soak.scenarios import Scenarios, disk
from tests.soak.shim import Shim

MODELS = ("tiny_odd", "tiny_cnn", "tiny_branches")
"""Models of the runs, in turn."""

ENOUGH = 300
"""Trials after which a model begins a new log: the spaces of small models end."""

FLAT_MIB, FLAT_SHARE = 8.0, 0.05
"""What a process may hold more at the end than after a quarter of the time: this much, or this share."""

GRACE_S = 120.0
"""Seconds that a resident may take to end."""


def grown(held: Sequence[Held]) -> list[str]:
    """What a process holds more of at the end than it should: by the medians of its second and last quarter."""
    quarter = max(1, len(held) // 4)
    second, last = held[quarter : 2 * quarter] or held, held[-quarter:]
    wrong = []
    before, after = (statistics.median(sample.rss_mib for sample in part) for part in (second, last))
    if after > before + max(FLAT_MIB, FLAT_SHARE * before):
        wrong.append(f"memory grew from {before:.1f} to {after:.1f} MiB")
    for what in ("files", "threads"):
        before, after = (statistics.median(getattr(sample, what) for sample in part) for part in (second, last))
        if after > before + 1:
            wrong.append(f"{what} grew from {before:.0f} to {after:.0f}")
    return wrong


class Resident:
    """A process of ``tests.soak.residents`` and what it told."""

    def __init__(self, kind: str, campaign: Campaign, folder: Path, told: Path) -> None:
        self.kind, self._told = kind, told / f"{kind}.jsonl"
        self._said = told / f"{kind}.stderr"
        with self._said.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.residents", kind, folder, campaign.model, self._told],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )

    def __enter__(self) -> Resident:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> tuple[list[Held], list[str]]:
        """Ask it to end: what it held over time, and what is wrong."""
        self._process.terminate()
        try:
            code = self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        held = [Held(**json.loads(line)) for line in self._told.read_text().splitlines()]
        wrong = grown(held)
        if code:
            wrong.append(f"it ended with status {code}: {self._said.read_text()[-500:]}")
        if held[-1].wrong:
            wrong.append(f"{held[-1].wrong} of {held[-1].count} went wrong: {self._said.read_text()[-500:]}")
        return held, wrong


def runs(campaigns: Sequence[Campaign], scenarios: Scenarios, until_s: float) -> Iterator[tuple[str, Outcome]]:
    """Every scenario as often as every other, of every model, until the time is over."""
    turn = itertools.cycle(campaigns)
    while True:
        works = list(scenarios.all.items())
        scenarios.rng.shuffle(works)
        for name, work in works:
            if time.monotonic() > until_s:
                return
            campaign = next(turn)
            if len(campaign.stored) > ENOUGH:
                campaign.begin_log()
            yield name, campaign.judged(functools.partial(work, campaign))


def begun(folder: Path, seed: int) -> list[Campaign]:
    """A campaign for every model, each with an artifact."""
    campaigns = []
    for name in MODELS:
        (folder / name).mkdir()
        campaign = Campaign(folder / name, seed, name)
        if problems := campaign.examined("", "").problems:
            raise RuntimeError(f"an undisturbed run of {name} goes wrong: {'; '.join(problems)}")
        campaigns.append(campaign)
    return campaigns


def table(outcomes: dict[str, list[Outcome]]) -> list[str]:
    """Lines: a row per scenario."""
    lines = ["| what happened | runs | failed | new records | lost | orphans | most repeated | problems |"]
    lines.append("|---|" + "---:|" * 7)
    for name, of_scenario in outcomes.items():
        counts = [
            len(of_scenario),
            sum(o.killed.code != 0 for o in of_scenario),
            sum(o.records for o in of_scenario),
            sum(o.lost for o in of_scenario),
            sum(o.killed.orphans for o in of_scenario),
            max(o.repeated for o in of_scenario),
            sum(bool(o.problems) for o in of_scenario),
        ]
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Hours on a machine that misbehaves")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    until_s = time.monotonic() + 60.0 * arguments.minutes
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    problems = 0
    own: list[Held] = []
    with tempfile.TemporaryDirectory(prefix="tune-soak-") as told, tempfile.TemporaryDirectory() as at, disk(Path(at)):
        scenarios = Scenarios(Shim(Path(told)), random.Random(arguments.seed))
        campaigns = begun(Path(at), arguments.seed)
        with contextlib.ExitStack() as stack:
            alive = [
                stack.enter_context(Resident(kind, campaigns[0], folder, Path(told)))
                for kind, folder in (("server", campaigns[0].folder), ("tuner", Path(told) / "tuner"))
            ]
            for name, outcome in runs(campaigns, scenarios, until_s):
                outcomes[name].append(outcome)
                own.append(Held.now(len(own) + 1))
                killed = outcome.killed
                where = f" in {killed.phase}" if killed.phase else ""
                print(f"{len(own)}: {name}{where}, status {killed.code}, {outcome.records} records", file=sys.stderr)
                for problem in outcome.problems:
                    problems += 1
                    print(f"  {problem}", flush=True)
            held = {resident.kind: resident.end() for resident in alive}
    held["this process, which opens every artifact"] = (own, grown(own))
    print("\n".join(table(outcomes)))
    print("\n| process | answers or runs | memory MiB, after a quarter and at the end | files | threads | problems |")
    print("|---|---:|---:|---:|---:|---|")
    for kind, (samples, wrong) in held.items():
        problems += len(wrong)
        early, late = samples[len(samples) // 4], samples[-1]
        numbers = f"{early.rss_mib:.1f}, {late.rss_mib:.1f} | {early.files}, {late.files}"
        numbers += f" | {early.threads}, {late.threads}"
        print(f"| {kind} | {late.count} | {numbers} | {'; '.join(wrong) or 'none'} |")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
