"""How often correction by measurement ends at the optimum: ``python -m research.lane_correction WHERE``.

simulated   runs are simulated, with costs and timings that are off by some share
device      runs are made, by the driver of lanes on cores and the simulated device
table       prints what was found so far

Every graph has a proven optimum by the costs that are right; ``placing.fastest`` is told others. On the device the
placements that correction began and ended with are run in turn as well, again where the latter looks worse, and the CPU
time that the hypervisor kept for itself meanwhile stands beside it. Every graph is a line of a file, and a run that was
stopped goes on with the next one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from autotune.backends.cpu.native_library import NativeLibrary
from autotune.builder.placing import WORTH, Candidate, PlacedModel, fastest
from autotune.cli.reply import table
from autotune.graph.exact import exact
from autotune.graph.lanes import HOST, copy_lanes
from autotune.graph.measured_costs import foreseen
from autotune.graph.partition import Subgraph
from autotune.graph.placement import Link, Placement, Problem, tensors_of
from autotune.graph.simulation import simulate
from autotune.runtime.model_timing import DUEL_RUNS, QUIET_S, RACE_RUNS, interval, occupied_s
from research.auto_lanes import FOLDER
from research.duet import (
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
from tests.autotune_tests.graph_tests.dags import random_edges
from tests.simulated.placed import Placed

EQUAL = 1e-6
"""Share by which two makespans may differ that are the same: rounding."""

SHARES, NOISES = (0.0, 0.05, 0.1, 0.2), (0.0, 0.01)

FEWEST, MOST = 5, 12
"""Subgraphs that a graph on the device has at least: of fewer, most are at the optimum whatever the costs; and of any
graph at most."""

ROUNDS, LOST, JUDGED, AGAIN = 12, 6, 24, 2
"""Rounds of two placements in turn on the device; how many lost ones are enough; rounds of the judge, and how often he
repeats them where the end looks worse. Fewer than ``model_timing`` takes: here a run is 20 to 100 ms."""


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

    def settled(self, placements: Sequence[PlacedModel]) -> Sequence[PlacedModel]:
        return placements

    def fits(self, _placed: PlacedModel) -> bool:
        return True

    def one_lane(self) -> list[Candidate[Placement]]:
        return []

    def make(self, _number: int, placed: PlacedModel) -> Placement:
        return placed.placement

    def true_s(self, placement: Placement) -> float:
        """Seconds of a run in truth."""
        return max(end for _, end in simulate(self.truth, placement))

    def seconds(self, candidates: Sequence[Candidate[Placement]]) -> list[float]:
        truth = [self.true_s(candidate.executable) for candidate in candidates]
        measured = list(map(self._measured, truth))
        self.began_s = truth[measured.index(min(measured))]
        return measured

    def ratios(self, one: Candidate[Placement], other: Candidate[Placement]) -> Sequence[float]:
        seconds = [self.true_s(candidate.executable) for candidate in (one, other)]
        rounds = [[self._measured(true_s) for true_s in seconds] for _ in range(DUEL_RUNS)]
        return interval([before / after for before, after in rounds])

    def taken(self, candidate: Candidate[Placement], _number: int) -> dict[str, float]:
        costs = foreseen(self.truth, candidate.executable)
        engines = {way: lane.name for way, lane in copy_lanes(self.truth.lanes).items()}
        subgraphs = {str(s): self._measured(seconds) for s, seconds in costs.subgraphs.items()}
        return subgraphs | {engines[way]: self._measured(seconds) for way, seconds in costs.links.items()}

    def _measured(self, seconds: float) -> float:
        return seconds * float(np.exp(self.rng.normal(0.0, self.noise)))


@dataclass
class Running:
    """As ``placing.Source``: a graph on the simulated device whose costs are believed to be others than they are."""

    graph: Graph
    believed: Problem
    began: Candidate[Placed] | None = None
    built: list[Placed] = field(default_factory=list)

    def cuts(self) -> list[tuple[tuple[Subgraph, ...], Problem]]:
        return [(self.graph.subgraphs, self.believed)]

    def settled(self, placements: Sequence[PlacedModel]) -> Sequence[PlacedModel]:
        return placements

    def fits(self, _placed: PlacedModel) -> bool:
        return True

    def one_lane(self) -> list[Candidate[Placed]]:
        return []

    def make(self, _number: int, placed: PlacedModel) -> Placed:
        self.built.append(self.graph.machine(placed.placement))
        return self.built[-1]

    def close(self) -> None:
        for placed in self.built:
            placed.machine.close()

    def _in_turn(self, candidates: Sequence[Candidate[Placed]], rounds: int) -> list[list[float]]:
        """(candidates, rounds) seconds. Subgraphs sleep, so there are no caches to fill again."""
        times: list[list[float]] = [[] for _ in candidates]
        order = list(zip(times, candidates, strict=True))
        for _ in range(WARM_RUNS + rounds):
            for laps, candidate in order:
                time.sleep(QUIET_S)
                began = time.perf_counter()
                candidate.executable.machine.run([self.graph.x])
                laps.append(time.perf_counter() - began)
            order.reverse()
        return [laps[WARM_RUNS:] for laps in times]

    def seconds(self, candidates: Sequence[Candidate[Placed]]) -> list[float]:
        medians = list(map(statistics.median, self._in_turn(candidates, RUNS)))
        self.began = candidates[medians.index(min(medians))]
        return medians

    def ratios(self, one: Candidate[Placed], other: Candidate[Placed]) -> Sequence[float]:
        first = self.compared(one, other, LOST)
        return interval(first if max(first) < 1.0 else [*first, *self.compared(one, other, ROUNDS - LOST)])

    def compared(self, one: Candidate[Placed], other: Candidate[Placed], rounds: int) -> list[float]:
        """(rounds,) seconds of ``one`` by those of ``other``."""
        return [a / b for a, b in zip(*self._in_turn([one, other], rounds), strict=True)]

    def taken(self, candidate: Candidate[Placed], _number: int) -> dict[str, float]:
        placed = candidate.executable
        runs = [placed.machine.timeline([self.graph.x]) for _ in range(WARM_RUNS + RACE_RUNS)][WARM_RUNS:]
        return occupied_s(runs, placed.steps.lanes)


Row = dict[str, Any]
"""What was found of one graph: where, number, off, noise, before and after (shares above the optimum, by the costs that
are right), and of the device ratio (of seconds before to after, the median within its interval), optimum (the same of
the optimum's seconds to those after), stolen, and drift: of the optimum's makespan by costs that were measured again
after: where that is much, the costs that are called right were not."""


def proven(number: int) -> tuple[Problem, float] | None:
    """Random problem ``number`` and its shortest makespan; None where that is not proven or there is no choice."""
    problem = random_problem(np.random.default_rng([1, number]), MOST)
    best = exact(problem)
    return (problem, best.placement.makespan_s) if best.gap == 0.0 and problem.count > 1 else None


def simulated(number: int, share: float) -> Iterator[Row]:
    """Correction of random problem ``number`` by simulated runs, from costs that are off by up to ``share``."""
    solution = proven(number)
    for column, noise in enumerate(NOISES if solution else ()):
        assert solution is not None
        truth, optimum_s = solution
        rng = np.random.default_rng([2, number, int(1e3 * share), column])
        source = Simulated(wrong(truth, rng, share), truth, rng, noise)
        last = source.true_s(fastest(source).candidate.executable)
        gaps = {"before": source.began_s / optimum_s - 1.0, "after": last / optimum_s - 1.0}
        yield {"where": "simulated", "number": number, "off": share, "noise": noise, **gaps}


def on_device(number: int, share: float) -> Iterator[Row]:
    """Correction of random graph ``number`` by runs on the simulated device, from costs off by up to ``share``.

    Sleeping and handing over are measured anew for every graph, since they drift.
    """
    library = _library()
    graph = random_graph(library, number, nap_s(library), driver_s(library))
    best = exact(graph.problem)
    if best.gap > 0.0 or not best.placement.copies or len(graph.parts) < FEWEST:
        return
    began_s, stolen = time.perf_counter(), stolen_s()
    with closing(Running(graph, wrong(graph.problem, np.random.default_rng([3, number]), share))) as source:
        last = fastest(source).candidate
        first = source.began
        assert first is not None
        ratio = judged(source, first, last)
        at_best = makespan_s(graph.problem, last) <= best.placement.makespan_s * (1.0 + EQUAL)
        optimum = Candidate("optimum", source.built[0] if at_best else source.make(0, model_as(first, best.placement)))
        from_best = (1.0, 1.0, 1.0) if at_best else judged(source, optimum, last)
    gaps = [makespan_s(graph.problem, placement) / best.placement.makespan_s - 1.0 for placement in (first, last)]
    share_stolen = (stolen_s() - stolen) / (time.perf_counter() - began_s)
    row = {"where": "device", "number": number, "off": share, "noise": None, "before": gaps[0], "after": gaps[1]}
    later = random_graph(library, number, nap_s(library), driver_s(library)).problem
    drift = max(end for _, end in simulate(later, best.placement)) / best.placement.makespan_s - 1.0
    yield row | {"ratio": ratio, "optimum": from_best, "stolen": share_stolen, "drift": drift}


def makespan_s(problem: Problem, candidate: Candidate[Placed]) -> float:
    """Seconds of a run by the costs of ``problem``."""
    assert candidate.placed is not None
    return max(end for _, end in simulate(problem, candidate.placed.placement))


def model_as(candidate: Candidate[Placed], placement: Placement) -> PlacedModel:
    """The model of ``candidate``, placed otherwise."""
    assert candidate.placed is not None
    return replace(candidate.placed, placement=placement)


@cache
def _library() -> NativeLibrary:
    folder = FOLDER / "fakes"
    folder.mkdir(parents=True, exist_ok=True)
    return fake_library(folder)


def judged(source: Running, first: Candidate[Placed], last: Candidate[Placed]) -> Sequence[float]:
    """Seconds of ``first`` by those of ``last``, in turn; the median of three comparisons where ``last`` is worse."""
    ratios = [(1.0, 1.0, 1.0) if first is last else interval(source.compared(first, last, JUDGED))]
    if ratios[0][1] < 1.0:
        ratios += [interval(source.compared(first, last, JUDGED)) for _ in range(AGAIN)]
    return sorted(ratios, key=lambda ratio: ratio[1])[len(ratios) // 2]


def find(file: Path, make: Callable[[int], Iterator[Row]], wanted: Row, count: int, first: int) -> None:
    """Add lines to ``file`` until there are ``count`` graphs of what is ``wanted``, from number ``first`` on."""
    numbers = {row["number"] for row in rows(file) if wanted.items() <= row.items()}
    done = len(numbers)
    for number in itertools.count(max(numbers, default=first - 1) + 1):
        if done >= count:
            return
        new = list(make(number))
        with file.open("a") as out:
            out.writelines(json.dumps(row) + "\n" for row in new)
        done += bool(new)


def rows(file: Path) -> list[Row]:
    """What was found so far."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


HEADS = ["where", "off", "timings", "graphs", "optimal before", "after", "within 0.5 %", "within 2 %", "mean gap"]
HEADS += [
    "worse",
    "by",
    "worse in turn",
    "beyond noise",
    "slower than the optimum in turn, beyond noise",
    "drifted",
    "stolen",
]


def line(group: Sequence[Row]) -> list[str]:
    """A line of the table: graphs that have all but the number in common."""
    before, after = (np.array([row[name] for row in group]) for name in ("before", "after"))
    one = group[0]
    near = [
        np.mean(gap <= limit) for gap, limit in ((before, EQUAL), *((after, n) for n in (EQUAL, 0.005, WORTH - 1.0)))
    ]
    worse = after - before
    cells = [one["where"], f"±{one['off']:.0%}", "" if one["noise"] is None else f"±{one['noise']:.0%}"]
    cells += [str(len(group)), *(f"{share:.1%}" for share in near), f"{before.mean():.2%}, {after.mean():.2%}"]
    cells += [str(np.sum(worse > EQUAL)), f"{max(worse.max(), 0.0):.2%}"]
    if "ratio" not in one:
        return [*cells, *[""] * 5]
    in_turn = [row["ratio"] for row in group]
    stolen = [row["stolen"] for row in group]
    cells += [str(sum(middle < 1.0 for _, middle, _ in in_turn)), str(sum(high < 1.0 for _, _, high in in_turn))]
    cells.append(str(sum(row["optimum"][2] < 1.0 for row in group)))
    cells.append(str(sum(abs(row["drift"]) > WORTH - 1.0 for row in group)))
    return [*cells, f"{np.mean(stolen):.0%}, {max(stolen):.0%} at most"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", choices=["simulated", "device", "table"])
    parser.add_argument("--count", type=int, default=60, help="graphs")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--off", type=float, nargs="+", default=SHARES, help="shares that costs are off by at most")
    parser.add_argument("--file", type=Path, default=FOLDER / "correction.jsonl", help="lines of graphs")
    arguments = parser.parse_args()
    arguments.file.parent.mkdir(parents=True, exist_ok=True)
    makes = {"simulated": simulated, "device": on_device}
    for share in arguments.off if arguments.where in makes else ():
        make = partial(makes[arguments.where], share=share)
        find(arguments.file, make, {"where": arguments.where, "off": share}, arguments.count, arguments.first)
    sorted_rows = sorted(rows(arguments.file), key=_kind)
    print("\n".join(table(HEADS, [line(list(group)) for _, group in itertools.groupby(sorted_rows, _kind)])))
    return 0


def _kind(row: Row) -> tuple[str, float, float]:
    return row["where"], row["off"], row["noise"] or 0.0


if __name__ == "__main__":
    sys.exit(main())
