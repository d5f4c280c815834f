"""``python -m research.budgets COMMIT MODEL…``: how much tuning an artifact needs, this tree beside another commit.

Four artifacts of every model, each tuned from an empty log: the other commit's after ``--before`` seconds; this tree's
after ``--now`` seconds, after ten trials per task, and without any. They run in turn, each in a process of its own, and
the second also in turn with ONNX Runtime and OpenVINO in fp32. A line of a Markdown table per model:

    wall        seconds of the whole command without trials
    trials      that this tree measured in ``--now`` seconds, and the other commit in ``--before``
    over both   the better engine's latency / this tree's after ``--now`` seconds
    before      the other commit's latency / this tree's after ``--now`` seconds, quartiles of the rounds
    0, 10       latency after ``--now`` seconds / after so many trials per task
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import sys
import time
from pathlib import Path

from research.guard import FOLDER, ROOT, Tree, checkout, turn_s

KINDS = ("before", "now", "ten", "none")


def tuned(tree: Tree, onnx: Path, kind: str, *arguments: str) -> tuple[Path, dict[str, object], float]:
    """The artifact, what the command said, and the command's seconds; from an empty log and without cached code."""
    out, log = FOLDER / f"budget-{onnx.stem}-{kind}.tuned", FOLDER / f"budget-{kind}.db"
    for file in FOLDER.glob(f"budget-{kind}.db*"):
        file.unlink()
    shutil.rmtree(out, ignore_errors=True)
    cache = FOLDER / f"cache-{kind}"
    shutil.rmtree(cache, ignore_errors=True)
    start = time.monotonic()
    said = tree.command(
        "run", str(onnx), "--log", str(log), "--out", str(out), "--json", *arguments, XDG_CACHE_HOME=str(cache)
    )
    return out, json.loads(said), time.monotonic() - start


def row(model: str, trees: tuple[Tree, Tree], before: str, now: str, rounds: int) -> list[float]:
    """Print the model's line; its ratios: over both, before, after 0 and 10 trials per task."""
    onnx = ROOT / f"build/models/{model}.onnx"
    old, new = trees
    runs = {"now": tuned(new, onnx, "now", "--budget", now)}
    tasks = int(str(runs["now"][1]["tasks"]))
    runs["ten"] = tuned(new, onnx, "ten", "--budget", "10m", "--trials", str(10 * tasks))
    runs["none"] = tuned(new, onnx, "none", "--effort", "instant")
    runs["before"] = tuned(old, onnx, "before", "--budget", before)
    engines = {kind: (old if kind == "before" else new).engine(runs[kind][0]) for kind in KINDS}
    laps: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for kind in KINDS if number % 2 else reversed(KINDS):
            laps[kind].append(turn_s(engines[kind]))
    for engine in engines.values():
        engine.kill()
    ratios = {kind: [a / b for a, b in zip(laps[kind], laps["now"], strict=True)] for kind in KINDS}
    turns = ("--against", "onnxruntime,openvino", "--rounds", str(rounds), "--json")
    said = new.command("bench", str(runs["now"][0]), "--model", str(onnx), *turns)
    over = min(json.loads(said)["speedup"].values())
    middle = {kind: statistics.median(values) for kind, values in ratios.items()}
    low, _, high = statistics.quantiles(ratios["before"], n=4)
    counts = " and ".join(str(runs[kind][1]["measured_trials"]) for kind in ("now", "before"))
    beside = f"{middle['before']:.3f} ({low:.2f}–{high:.2f})"
    few = f"{1 / middle['none']:.3f} | {1 / middle['ten']:.3f}"
    print(f"| {model} | {tasks} | {runs['none'][2]:.1f} | {counts} | {over:.2f} | {beside} | {few} |", flush=True)
    return [over, middle["before"], 1 / middle["none"], 1 / middle["ten"]]


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m research.budgets", description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--before", default="120s")
    parser.add_argument("--now", default="60s")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    trees = Tree(checkout(options.commit)), Tree(ROOT)
    print(
        "| model | tasks | wall | trials | over both | before | 0 | 10 |\n|---|---|---|---|---|---|---|---|", flush=True
    )
    rows = [row(model, trees, options.before, options.now, options.rounds) for model in options.models]
    means = [math.exp(statistics.mean(map(math.log, column))) for column in zip(*rows, strict=True)]
    print("| geometric mean | | | | " + " | ".join(f"{mean:.3f}" for mean in means) + " |")


if __name__ == "__main__":
    sys.exit(main())
