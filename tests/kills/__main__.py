"""``python -m tests.kills --count 200``: tuning runs killed at random moments; exit code 1 if anything is wrong."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.kills.campaign import Campaign, Outcome
from tests.kills.moments import PHASES
from tests.tuning_logs_tests.postgres_server import PostgresServer


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Lines: a row per phase, per victim, and for all kills."""
    kills = [outcome for outcome in outcomes if outcome.killed.victim]
    rows = [(f"in {phase}", [o for o in kills if o.killed.phase == phase]) for phase in PHASES]
    victims = sorted({outcome.killed.victim for outcome in kills})
    rows += [(f"of the {victim}", [o for o in kills if o.killed.victim == victim]) for victim in victims]
    rows += [("all", kills), ("not killed", [o for o in outcomes if not o.killed.victim])]
    lines = ["| kills | number | new records | lost | orphans | most repeated | last process gone after | problems |"]
    lines.append("|---|" + "---:|" * 7)
    for name, group in rows:
        repeated = max((o.repeated for o in group), default=0)
        ended_s = max((o.killed.ended_s for o in group), default=0.0)
        counts = [
            len(group),
            sum(o.records for o in group),
            sum(o.lost for o in group),
            sum(o.killed.orphans for o in group),
            repeated,
        ]
        wrong = sum(bool(o.problems) for o in group)
        lines.append(f"| {name} | {' | '.join(map(str, counts))} | {ended_s:.1f} s | {wrong} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description="Kill tuning runs at random moments")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgres", action="store_true", help="the log is on a PostgreSQL server, killed too")
    arguments = parser.parse_args()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="tune-kills-") as folder, contextlib.ExitStack() as stack:
        server = PostgresServer(durable=True) if arguments.postgres else None
        if server:
            stack.callback(server.stop)
        for outcome in Campaign(Path(folder), arguments.seed, server=server).run(arguments.count):
            outcomes.append(outcome)
            killed = outcome.killed
            what = f"{killed.victim} killed in {killed.phase}" if killed.victim else "ended by itself"
            print(f"{len(outcomes)}: {what}, {outcome.records} records", file=sys.stderr, flush=True)
            for problem in outcome.problems:
                print(f"{len(outcomes)}, {what}: {problem}", flush=True)
    print("\n".join(table(outcomes)))
    return 1 if any(outcome.problems for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
