"""How often correction by measurement ends at the optimum: ``python -m tests.bench.lane_correction WHERE``.

simulated   runs are simulated, with costs and timings that are off by some share
device      runs are made, by the driver of lanes on cores and the simulated device

Every graph has a proven optimum by the costs that are right; ``placing.fastest`` is told others.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from autotune.builder.placing import WORTH, Candidate, PlacedModel, fastest
from autotune.cli.reply import table
from autotune.graph.exact import exact
from autotune.graph.lanes import HOST, copy_lanes
from autotune.graph.measured_costs import foreseen
from autotune.graph.partition import Subgraph
from autotune.graph.placement import Link, Placement, Problem, tensors_of
from autotune.graph.placers import correction, greedy
from autotune.graph.simulation import simulate
from autotune.runtime.model_timing import occupied_s
from tests.autotune_tests.backends_tests.software_tests.placed import Placed
from tests.autotune_tests.graph_tests.dags import random_edges
from tests.bench.duet import (
    LANES,
    RUNS,
    WARM_RUNS,
    Graph,
    driver_s,
    fake_library,
    nap_s,
    random_graph,
    stolen_s,
)
from tests.bench.placer_catalog import single

NEAR = {1e-6: "at the optimum", 0.005: "within 0.5 %", WORTH - 1.0: f"within {WORTH - 1.0:.0%}"}
"""Shares by which a makespan is longer than the optimum: what is within the last is not told from noise."""


REPORTED = 10
"""Graphs after which there is a report."""

FEWEST = 5
"""Subgraphs that a graph on the device has at least: of fewer, most are at the optimum whatever the costs."""


def random_problem(rng: Any, most: int) -> Problem:
    """A CPU, a device, and up to ``most`` subgraphs of all sizes."""
    needs = random_edges(rng, most)
    cpu = [float(rng.uniform(0.1, 2.0)) for _ in needs]
    device = [cost * float(rng.uniform(0.2, 2.0)) for cost in cpu]
    sizes = [int(size) for size in rng.integers(0, 10_000, len(needs))]
    ways = {(HOST, "sim:0"): Link(0.01, 1e5), ("sim:0", HOST): Link(0.02, 5e4)}
    alone = tuple(zip(cpu, device, strict=True))
    return Problem(LANES, tensors_of(needs, sizes), alone, {}, Link(), ways)


def wrong(problem: Problem, rng: Any, share: float) -> Problem:
    """``problem`` as it would be profiled with errors of up to ``share``, of subgraphs and of links."""

    def off() -> float:
        return float(rng.uniform(1 - share, 1 + share))

    links = {}
    for way, link in problem.links.items():
        by = off()
        links[way] = Link(link.latency_s * by, link.bytes_per_s / by)
    return replace(problem, alone=tuple(tuple(c and c * off() for c in row) for row in problem.alone), links=links)


@dataclass
class Simulated:
    """As ``placing.Source``: a model whose costs are believed to be one thing, while runs take another.

    Attributes:
        noise: standard deviation of every time that is measured, as a share of it.
        began_s: of the placement that the correction begins with, in truth.
    """

    believed: Problem
    truth: Problem
    rng: Any
    noise: float
    began_s: float = 0.0

    def cuts(self) -> list[tuple[tuple[Subgraph, ...], Problem]]:
        return [(tuple(Subgraph(str(s), ()) for s in range(self.believed.count)), self.believed)]

    def one_lane(self) -> list[Candidate[Placement]]:
        return []

    def make(self, _number: int, placed: PlacedModel) -> Placement:
        return placed.placement

    def true_s(self, placement: Placement) -> float:
        """Seconds of a run in truth."""
        return max(end for _, end in simulate(self.truth, placement))

    def seconds(self, candidates: Sequence[Candidate[Placement]]) -> list[float]:
        self.began_s = self.began_s or min(self.true_s(each.made) for each in candidates)
        return [self._measured(self.true_s(each.made)) for each in candidates]

    def ratios(self, one: Candidate[Placement], other: Candidate[Placement]) -> Sequence[float]:
        raise AssertionError("there is no one lane to compare with")

    def taken(self, candidate: Candidate[Placement]) -> dict[str, float]:
        found = foreseen(self.truth, candidate.made)
        engines = {way: lane.name for way, lane in copy_lanes(self.truth.lanes).items()}
        subgraphs = {str(s): self._measured(seconds) for s, seconds in found.subgraphs.items()}
        return subgraphs | {engines[way]: self._measured(seconds) for way, seconds in found.links.items()}

    def _measured(self, seconds: float) -> float:
        return seconds * float(np.exp(self.rng.normal(0.0, self.noise)))


@dataclass
class Running:
    """As ``placing.Source``: a graph on the simulated device whose costs are believed to be others than they are."""

    graph: Graph
    believed: Problem
    began: Placement | None = None
    made: list[Placed] = field(default_factory=list)

    def cuts(self) -> list[tuple[tuple[Subgraph, ...], Problem]]:
        return [(self.graph.subgraphs, self.believed)]

    def one_lane(self) -> list[Candidate[Placed]]:
        return []

    def make(self, _number: int, placed: PlacedModel) -> Placed:
        self.made.append(self.graph.machine(placed.placement))
        return self.made[-1]

    def close(self) -> None:
        for placed in self.made:
            placed.machine.close()

    def seconds(self, candidates: Sequence[Candidate[Placed]]) -> list[float]:
        times: list[list[float]] = [[] for _ in candidates]
        for number in range(WARM_RUNS + RUNS):
            for each, candidate in zip(times, candidates, strict=True):
                began = time.perf_counter()
                candidate.made.machine.run([self.graph.x])
                each += [time.perf_counter() - began] if number >= WARM_RUNS else []
        medians = list(map(statistics.median, times))
        if self.began is None:
            quickest = candidates[medians.index(min(medians))].placed
            assert quickest is not None
            self.began = quickest.placement
        return medians

    def ratios(self, one: Candidate[Placed], other: Candidate[Placed]) -> Sequence[float]:
        raise AssertionError("there is no one lane to compare with")

    def taken(self, candidate: Candidate[Placed]) -> dict[str, float]:
        placed = candidate.made
        runs = [placed.machine.timeline([self.graph.x]) for _ in range(WARM_RUNS + RUNS)][WARM_RUNS:]
        return occupied_s(runs, placed.steps.lanes)


def corrected_on_device(count: int, first: int, share: float) -> None:
    """Correction by runs on the simulated device, from costs that are off by up to ``share``.

    Sleeping and handing over are measured anew for every graph, since they drift.
    """
    rows: list[list[float]] = []
    began_s, stolen = time.perf_counter(), stolen_s()
    with tempfile.TemporaryDirectory() as folder:
        library = fake_library(Path(folder))
        for number in itertools.count(first):
            graph = random_graph(library, number, nap_s(library), driver_s(library))
            best = exact(graph.problem)
            if best.gap > 0.0 or not best.placement.copies or len(graph.parts) < FEWEST:
                continue
            with closing(Running(graph, wrong(graph.problem, np.random.default_rng([3, number]), share))) as source:
                found = fastest(source)
            last = found.candidate.placed
            assert last is not None
            assert source.began is not None
            took = [max(end for _, end in simulate(graph.problem, p)) for p in (source.began, last.placement)]
            rows.append([seconds / best.placement.makespan_s - 1.0 for seconds in took])
            if rows[-1][1] > WORTH - 1.0:
                optimum_ms = 1e3 * best.placement.makespan_s
                print(
                    f"graph {number}: optimum {optimum_ms:.1f} ms, began {rows[-1][0]:+.1%}, ended {rows[-1][1]:+.1%}"
                )
                print("measured", ", ".join(f"{name} {value:.1f}" for name, value in found.ms.items()))
            if len(rows) % REPORTED and len(rows) < count:
                continue
            print(f"graphs {first} to {number}, {len(rows)} of them on both: costs off by up to {share:.0%}")
            report_gaps(np.array(rows))
            print(f"{(stolen_s() - stolen) / (time.perf_counter() - began_s):.0%} of a CPU were stolen", flush=True)
            if len(rows) == count:
                break


def report_gaps(gaps: Any) -> None:
    """Print how far, by the costs that are right, placements were from the optimum: (graphs, before and after)."""
    for name, gap in zip(("before", "after"), gaps.T, strict=True):
        near = [f"{np.sum(gap <= least)} {words}" for least, words in NEAR.items()]
        print(f"{name}: {', '.join(near)}; mean gap {gap.mean():.2%}, largest {gap.max():.1%}")
    worse = gaps[:, 1] - gaps[:, 0]
    print(f"ended worse than it began: {np.sum(worse > 1e-9)}, by {max(worse.max(), 0.0):.2%} at most")


def corrected_row(truths: list[tuple[Problem, float]], rng: Any, share: float, noise: float) -> list[str]:
    """How far from the optimum ``placing.fastest`` begins and ends, with costs and measurements that are so far off."""
    before, after = [], []
    for truth, optimum_s in truths:
        source = Simulated(wrong(truth, rng, share), truth, rng, noise)
        last = source.true_s(fastest(source).candidate.made)
        before.append(source.began_s / optimum_s - 1.0)
        after.append(last / optimum_s - 1.0)
    optimal = [np.mean(np.array(each) <= 1e-6) for each in (before, after)]
    optimal.append(np.mean(np.array(after) <= WORTH - 1.0))  # what is nearer is not told from noise
    worse = sum(last > first + 1e-9 for first, last in zip(before, after, strict=True))
    gaps = (np.mean(each) for each in (before, after))
    return [f"±{share:.0%}", f"{noise:.1%}", *(f"{v:.1%}" for v in optimal), *(f"{v:.2%}" for v in gaps), str(worse)]


def correction_table(count: int, shares: Sequence[float]) -> None:
    """How far from the optimum the correction begins and ends."""
    rng = np.random.default_rng(1)
    truths: list[tuple[Problem, float]] = []
    while len(truths) < count:
        problem = random_problem(rng, 12)
        best = exact(problem)
        if best.gap == 0.0 and problem.count > 1:
            truths.append((problem, best.placement.makespan_s))
    print(f"{count} graphs of up to 12 subgraphs, each with a proven optimum")
    heads = ["costs off by", "timings by", "optimal before", "after", "within 2 %", "mean gap before", "after", "worse"]
    for share, noise in itertools.product(shares, (0.0, 0.01)):
        row = corrected_row(truths, rng, share, noise)
        print("\n".join(table(heads, [row])), flush=True)
    for name, place in (("one lane", single), ("greedy", greedy), ("greedy-correction", correction)):
        gap = np.array([place(problem).makespan_s / best_s - 1.0 for problem, best_s in truths])
        print(f"by costs alone, {name}: optimal in {np.mean(gap <= 1e-6):.0%}, mean gap {gap.mean():.2%}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", choices=["simulated", "device"])
    parser.add_argument("--count", type=int, default=60, help="graphs")
    parser.add_argument("--first", type=int, default=0, help="number of the first one on the device")
    parser.add_argument(
        "--off", type=float, help="share that costs are off by at most; 0.2 on the device, else several"
    )
    arguments = parser.parse_args()
    if arguments.where == "simulated":
        correction_table(arguments.count, (0.2, 0.1, 0.05, 0.0) if arguments.off is None else (arguments.off,))
    else:
        corrected_on_device(arguments.count, arguments.first, 0.2 if arguments.off is None else arguments.off)
    return 0


if __name__ == "__main__":
    sys.exit(main())
