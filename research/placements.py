"""How far quick placements are from the best one: ``python -m research.placements LOG MODEL.onnx…``.

Costs come from LOG, into which ``tune run MODEL --lanes auto`` wrote them; nothing is measured or compiled.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from autotune.artifact.apply_plan import apply_plan
from autotune.backends.cpu.linking import concats_of
from autotune.builder.build_request import LaneKernels
from autotune.builder.core_groups import CoreGroups
from autotune.builder.lane_budget import cut_program, for_threads, plan_sizes
from autotune.builder.profile_cache import ProfileCache
from autotune.cli.reply import table
from autotune.graph.exact import exact
from autotune.graph.flattening import read_flat
from autotune.graph.lanes import parse_lanes
from autotune.graph.partition import Partition
from autotune.graph.placement import Problem
from autotune.graph.simulation import simulate
from autotune.importer.guarded_import import import_model
from autotune.measure.measurer import symbol_of
from autotune.options import Options
from autotune.tuning.run_plan import resolve_target
from research.placer_catalog import PLACERS
from schedules.lower import MOST_LOSSY
from tuning_logs.sql_store import open_log

HEADS = [
    "model",
    "phases",
    "wide",
    "subgraphs",
    "exact ms",
    "simulated ms",
    "gap proven",
    "s",
    *(n for n in PLACERS if n != "exact"),
]


def problems(model: Path, log_path: str) -> Iterator[tuple[Partition, Problem]]:
    """The placement problems of a model, coarse and refined."""
    options = Options(log=log_path, lanes="auto")
    target = resolve_target(options)
    lanes = parse_lanes("auto", target.threads)
    _, program = import_model(model, options.inputs, target)
    log = open_log(log_path)
    kinds = {}
    for threads, size in plan_sizes(program, target, lanes).items():
        own = target if threads == target.threads else type(target)(**{**vars(target), "threads": threads})
        kinds[threads] = LaneKernels(own, for_threads(program, own), size.tasks, None)
    if len(kinds) == 1:
        return
    plans = {threads: kind.plan(log, True, MOST_LOSSY) for threads, kind in kinds.items()}
    flats = {t: read_flat(apply_plan(kind.program, plans[t]), concats_of(kind.program)) for t, kind in kinds.items()}
    objects = {t: {symbol_of(key): Path() for key in kind.tasks} for t, kind in kinds.items()}
    cache = ProfileCache(log, target, frozen=True)
    groups = CoreGroups(plans, cast(Any, flats), objects, lanes, target.threads, cache, (), Path())
    _, cut = cut_program(program, target)
    yield cut, groups.problem(cut)


def row(model: Path, cut: Partition, problem: Problem) -> list[str]:
    """One line of the table."""
    began = time.perf_counter()
    best = exact(problem)
    seconds = time.perf_counter() - began
    least = best.placement.makespan_s
    simulated = max(end for _, end in simulate(problem, best.placement))
    others = [f"{place(problem).makespan_s / least - 1.0:+.1%}" for name, place in PLACERS.items() if name != "exact"]
    wide = sum(phase.is_multi_path for phase in cut.phases)
    counts = [str(len(cut.phases)), str(wide), str(problem.count)]
    return [
        model.stem,
        *counts,
        f"{1e3 * least:.3f}",
        f"{1e3 * simulated:.3f}",
        f"{best.gap:.1%}",
        f"{seconds:.2f}",
        *others,
    ]


def cost_lines(cut: Partition, problem: Problem) -> list[str]:
    """What every subgraph costs on every lane, microseconds: alone / beside a busy neighbour."""
    rows = []
    for s, part in enumerate(cut.subgraphs):
        pairs = zip(problem.alone[s], problem.busy[s], strict=True)
        told = ["–" if a is None or b is None else f"{1e6 * a:.1f} / {1e6 * b:.1f}" for a, b in pairs]
        rows.append([part.name, str(len(part.nodes)), *told])
    return table(["subgraph", "kernels", *(lane.name for lane in problem.lanes)], rows)


def recorded(model: Path, problem: Problem) -> dict[str, Any]:
    """What ``research.lane_scale`` reads: a model's subgraphs, and their seconds on one core and on two."""
    by_threads = {lane.threads: number for number, lane in enumerate(problem.lanes)}
    sizes = {tensor.source: tensor.bytes for tensor in problem.tensors}
    whole = [row[by_threads[2]] or 0.0 for row in problem.alone]
    return {
        "name": model.stem.partition("-")[0],
        "needs": [list(needs) for needs in problem.needs],
        "bytes": [sizes.get(s, 0) for s in range(problem.count)],
        # What has no kernels for one core lies beside nothing: there two are taken to be worth nothing more than one.
        "one": [row[by_threads[1]] or two for row, two in zip(problem.alone, whole, strict=True)],
        "two": whole,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--record", type=Path, help="write the last model's costs there, for research.lane_scale")
    parser.add_argument("--costs", action="store_true", help="also show what every subgraph costs on every lane")
    arguments = parser.parse_args()
    rows = []
    for model in arguments.models:
        both = list(problems(model, arguments.log))
        if arguments.record and both:
            arguments.record.write_text(json.dumps(recorded(model, both[-1][1])))
        if arguments.costs:
            print("\n".join(line for cut, problem in both for line in cost_lines(cut, problem)))
        rows += [row(model, cut, problem) for cut, problem in both] or [[model.stem, "nothing to place"]]
    print("\n".join(table(HEADS, [line + [""] * (len(HEADS) - len(line)) for line in rows])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
