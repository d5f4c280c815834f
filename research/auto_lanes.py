"""``--lanes auto`` beside one lane: ``python -m research.auto_lanes STEP MODEL[:BUDGET]… [--cut SHARE]``.

tune    tune each model with ``--lanes auto``, and build it again for one lane from the same log
bench   run the two artifacts by processes of their own, in turn, several pairs of them, and keep the line
table   print the last line of every model

A ratio above 1 means that ``auto`` is faster. The bound is the most that any split of the subgraphs over two cores
could gain: Σ c₂ / (Σ min(c₁, 2 c₂) / 2), where c₁ and c₂ are the seconds of a subgraph on one core and on two, by the
profiles in the log.

With ``--cut SHARE`` operators of that share of the model's arithmetic or more are cut in halves before it is tuned with
``auto``, and the one lane is of the model as it was.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import onnx

from autotune.artifact.directory import read_artifact
from autotune.builder.branches import multiply_adds
from autotune.cli.reply import table
from autotune.graph.placement import Problem
from autotune.importer.load import load_model
from autotune.importer.onnx_model.operator_splits import split_operators
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.program import simplify
from research.duet import stolen_s
from research.guard import ROOT, Tree, in_turn, turn_s
from research.placements import problems
from tests.models.catalog import cached

PAIRS = 6
"""Pairs of processes that share the rounds. Where the system puts a process's memory decides what displaces what in L2:
the same files in one pair were 0.856 (0.838–0.897) times as fast as each other over 24 rounds (Wide&Deep, whose
recurrent weights fill both cores' L2)."""

FOLDER = ROOT / "build/lanes"
ROWS = FOLDER / "rows.jsonl"
HEADS = [
    "model",
    "one lane ms",
    "auto ms",
    "gain",
    "quartiles",
    "rounds",
    "lanes",
    "predicted ms",
    "bound",
    "stolen",
]


def cut_in_halves(model: Path, least: float, out: Path) -> int:
    """Write ``model`` with its larger operators cut to ``out``; how many were."""
    simple = simplify(load_model(model, {}))
    scope = Scope(simple)
    total = sum(multiply_adds(node, scope) for node in simple.graph.node)
    cut, joins = split_operators(simple, lambda n, s: 0.5 if multiply_adds(n, s) >= least * total else None)
    onnx.save(cut, out)
    return len(joins)


def area_bound(problem: Problem) -> float:
    """The most that two cores could gain over one lane of two threads."""
    column = {lane.threads: number for number, lane in enumerate(problem.lanes)}
    both = [costs[column[2]] or 0.0 for costs in problem.alone]
    one = [costs[column[1]] for costs in problem.alone]
    area = sum(2.0 * two if single is None else min(single, 2.0 * two) for single, two in zip(one, both, strict=True))
    return sum(both) / (area / 2.0)


def stem_of(name: str, cut: float | None) -> str:
    """What the files of a model are called."""
    return name if cut is None else f"{name}-cut"


def tune(name: str, budget: str, cut: float | None) -> None:
    """Tune and build the two artifacts; what the log has already is not measured again."""
    model, stem = cached(name), stem_of(name, cut)
    tuned, tree, count = model, Tree(ROOT), 0
    if cut is not None:
        tuned = FOLDER / f"{stem}.onnx"
        count = cut_in_halves(model, cut, tuned)
    log = FOLDER / f"{stem}.db"
    if (
        cut is not None and not log.exists()
    ):  # of its own: better kernels would take the profiles of the whole model away
        with closing(sqlite3.connect(FOLDER / f"{name}.db")) as known, closing(sqlite3.connect(log)) as copied:
            known.backup(copied)
    common = ("--log", str(log), "--quiet")
    auto, one = FOLDER / f"{stem}-auto.tuned", FOLDER / f"{stem}-one.tuned"
    tree.command("run", str(tuned), "--lanes", "auto", "--budget", budget, "--out", str(auto), "--no-peer", *common)
    tree.command("build", str(model), "--lanes", "cpu", "--out", str(one), *common)
    print(f"{stem}: tuned, {count} operators cut", flush=True)


def bench(name: str, cut: float | None, rounds: int) -> dict[str, str]:
    """The two artifacts of ``name`` in turn: a line of the table."""
    stem = stem_of(name, cut)
    auto, one = FOLDER / f"{stem}-auto.tuned", FOLDER / f"{stem}-one.tuned"
    turns: dict[int, list[float]] = {0: [], 1: []}
    ratios: list[float] = []
    began, stolen = time.perf_counter(), stolen_s()
    for pair in range(PAIRS):
        engines = {number: Tree(ROOT).engine((one, auto)[number]) for number in ((0, 1), (1, 0))[pair % 2]}

        def turn(number: int, engines: dict[int, Any] = engines) -> float:
            turns[number].append(turn_s(engines[number]))
            return turns[number][-1]

        ratios += in_turn(lambda: turn(0), lambda: turn(1), rounds // PAIRS)
        for engine in engines.values():
            engine.kill()
    share = (stolen_s() - stolen) / (time.perf_counter() - began)
    low, middle, high = statistics.quantiles(ratios, n=4)
    ms = [f"{1e3 * statistics.median(turns[number]):.3f}" for number in (0, 1)]
    placed = read_artifact(auto).plan.lanes
    lanes = "one" if placed is None else f"{len({subgraph.lane for subgraph in placed.subgraphs})}"
    predicted = "–" if placed is None else f"{1e3 * placed.predicted_s:.3f}"
    tuned = cached(name) if cut is None else FOLDER / f"{stem}.onnx"
    bounds = [area_bound(problem) for _, problem in problems(tuned, str(FOLDER / f"{stem}.db"))]
    bound = f"{max(bounds):.2f}" if bounds else "–"
    line = [stem, *ms, f"{middle:.3f}", f"{low:.3f}–{high:.3f}", str(rounds), lanes, predicted, bound, f"{share:.0%}"]
    return dict(zip(HEADS, line, strict=True))


def rows() -> list[list[str]]:
    """The last line of every model that was run."""
    lines = map(json.loads, ROWS.read_text().splitlines()) if ROWS.exists() else ()
    return list({line["model"]: [line[head] for head in HEADS] for line in lines}.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["tune", "bench", "table"])
    parser.add_argument("models", nargs="*", metavar="MODEL[:BUDGET]")
    parser.add_argument("--cut", type=float, metavar="SHARE")
    parser.add_argument("--rounds", type=int, default=48, help=f"of all {PAIRS} pairs of processes together")
    arguments = parser.parse_intermixed_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for named in arguments.models:
        name, _, budget = named.partition(":")
        if arguments.step == "tune":
            tune(name, budget or "20s", arguments.cut)
        elif arguments.step == "bench":
            with ROWS.open("a") as file:
                file.write(json.dumps(bench(name, arguments.cut, arguments.rounds)) + "\n")
    if arguments.step != "tune":
        print("\n".join(table(HEADS, rows())), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
