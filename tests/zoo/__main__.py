"""``python -m tests.zoo MODEL|FOLDER…``: imports ONNX files, each in a process of its own; ``--effort``
also tunes, verifies and compares it.

Outcomes are appended to a file of JSON lines, so that an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from tests.zoo.trial import Outcome
from tests.zoo.tuned import ENGINES, tuned

LIMIT_S = 600.0
"""Seconds after which a model counts as a hang. The importer's own limits are below it."""

COMMAND = "; to tune the rest"
"""Where the command begins that a refusal ends with."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="+", help="files, or folders of them")
    parser.add_argument("--results", type=Path, default=Path("build/zoo.jsonl"))
    parser.add_argument("--page", type=Path, help="write the table here")
    parser.add_argument("--speeds", action="store_true", help="print the table of those that were compared")
    parser.add_argument("--effort", help="tune with this effort; without it models are only imported")
    parser.add_argument(
        "--rounds", type=int, default=0, help="compare with ONNX Runtime and OpenVINO in so many rounds"
    )
    parser.add_argument(
        "--keep", type=Path, help="tune on to the budget's end, compare that artifact too, and keep log and events here"
    )
    parser.add_argument("--limit-s", type=float, default=1e9, help="start no model after this many seconds")
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    lines = options.results.read_text().splitlines() if options.results.is_file() else []
    known = {data["name"]: Outcome(**data) for data in map(json.loads, lines)}
    began = time.monotonic()
    found = (given.glob("*.onnx") if given.is_dir() else [given] for given in options.models)
    for path in sorted(chain.from_iterable(found)):
        if path.stem in known or time.monotonic() - began > options.limit_s:
            continue
        outcome = tried(path)
        if options.effort and outcome.kind in ("whole", "fallback"):
            made = tuned(path, outcome.kind, outcome.inputs, options.effort, options.rounds, options.keep)
            outcome = replace(outcome, tuned=vars(made))
            print(f"{'right' if made.right else 'FAILED':8} {made.seconds:6.1f} s {made.message[:300]}", flush=True)
        known[path.stem] = outcome
        with options.results.open("a") as stream:
            stream.write(json.dumps(vars(outcome)) + "\n")
        print(f"{outcome.kind:8} {outcome.seconds:6.1f} s {outcome.name} {outcome.message[:200]}", flush=True)
    print(dict(Counter(outcome.kind for outcome in known.values())))
    if options.speeds:
        print("\n".join(speeds(known)))
    if options.page:
        options.page.write_text(page(known))


def tried(path: Path) -> Outcome:
    """The outcome of one model."""
    command = [sys.executable, "-m", "tests.zoo.trial", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(path.stem, "crash", f"no end within {LIMIT_S:.0f} s")
    if done.returncode:
        return Outcome(path.stem, "crash", " ".join(done.stderr.strip().splitlines()[-1:]))
    data = json.loads(done.stdout.splitlines()[-1])
    return Outcome(**{**data, "inputs": tuple(data["inputs"])})


def page(known: Mapping[str, Outcome]) -> str:
    """docs/zoo.md."""
    outcomes = sorted(known.values(), key=lambda outcome: outcome.name)
    counts = Counter(outcome.kind for outcome in outcomes)
    made = [outcome.tuned for outcome in outcomes if outcome.tuned]
    right, compared = sum(each["right"] for each in made), sum(bool(each["speed"]) for each in made)
    counted = f"Of {len(made)} that were tuned, {right} are right, and {compared} were compared."
    lines = [
        "# Models that people have",
        "",
        "Fresh exports with random weights (`tests/zoo/exports.py`: PyTorch's TorchScript exporter, `.ts`, its newer",
        "one, `.dyn`, and skl2onnx), some of them as ONNX Runtime's quantisers and optimiser leave them",
        "(`tests/zoo/quantised.py`), and trained models of public packages (`tests/zoo/shipped.py`), each imported in",
        "a process of its own, as `tune tasks` does, then tuned by `tune run --effort` as the column says and",
        "verified; `--rounds` also compares it with ONNX Runtime and OpenVINO. Made by `python -m tests.zoo`, as",
        "`make zoo` does.",
        "",
        "| models | imported whole | with `--fallback onnxruntime` | refused | crash or hang |",
        "|---|---|---|---|---|",
        f"| {len(outcomes)} | {counts['whole']} | {counts['fallback']} | {counts['refused']} | {counts['crash']} |",
        "",
        "Seconds run from the start of the process to the tasks, or to the refusal of the whole, while the machine may",
        "do other work; memory is that of the larger of the two processes that import. Open shapes were those of the",
        "command that the refusal suggests.",
        "",
        counted,
        "",
        "| model | nodes | MB | outcome | seconds | peak MB | effort | right | tuning s | over the better of both |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each.name} | {each.nodes} | {each.megabytes} | {each.kind} | {each.seconds} | {each.peak_mb:.0f} |"
        f" {' | '.join(_tuned_cells(each.tuned))} |"
        for each in outcomes
    ]
    failed = [each for each in outcomes if each.tuned and not each.tuned["right"]]
    if failed:
        lines += ["", "## Not right, and why", ""]
        lines += [
            f"- **{each.name}**: {' '.join(each.tuned['message'].split())[:300]}" for each in failed if each.tuned
        ]
    rest = [each for each in outcomes if each.message]
    if rest:
        lines += ["", "## Not whole, and why", ""]
        lines += [f"- **{each.name}**: {' '.join(each.message.split(COMMAND)[0].split())[:300]}" for each in rest]
    return "\n".join(lines) + "\n"


def speeds(known: Mapping[str, Outcome]) -> list[str]:
    """The table of the models that were compared: seconds of ``tune run``, our latency, that of the other engines over
    it, and how many nanoseconds the CPUs were apart before and after the comparison.
    """
    made = {name: each.tuned for name, each in sorted(known.items()) if each.tuned and each.tuned["speed"]}
    least = [min(each["speed"].values()) for each in made.values()]
    lines = [
        "| model | run s | ours ms | over ONNX Runtime | over OpenVINO | CPUs apart ns |",
        "|---|---|---|---|---|---|",
    ]
    for name, each in made.items():
        cells = [f"{each['speed'][engine]:.2f}" if engine in each["speed"] else "–" for engine in ENGINES]
        apart = ", ".join(f"{ns:.0f}" for ns in each.get("apart_ns") or ())
        cells = [f"{each['seconds']:.0f}", f"{each['tuned_ms']:.3g}", *cells, apart or "–"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    if least:
        mean = math.exp(math.fsum(map(math.log, least)) / len(least))
        ahead = sum(each >= 1 for each in least)
        lines += [
            "",
            f"{ahead} of {len(least)} are as fast as the better of both; over it {mean:.2f} in the geometric mean.",
        ]
    return lines


def _tuned_cells(made: Mapping[str, Any] | None) -> list[str]:
    if not made:
        return ["–"] * 4
    speed = min((made["speed"] or {}).values(), default=None)
    return [made["effort"], "yes" if made["right"] else "no", str(made["seconds"]), f"{speed:.2f}" if speed else "–"]


if __name__ == "__main__":
    main()
