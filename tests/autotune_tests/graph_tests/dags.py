"""Random graphs, flat programs over them, and costs."""

from __future__ import annotations

from autotune.graph.flat import Flat, FlatCall, Source, Use
from autotune.graph.lanes import Lane, cpu_lane
from autotune.graph.placement import Link, Problem, tensors_of

SIZES = (1, 3, 20, 40)
"""Doubles that a call writes."""


def random_edges(rng, most=24):
    """Nodes in topological order, each reading up to three earlier ones."""
    count = int(rng.integers(1, most + 1))
    return [sorted({int(rng.integers(0, v)) for _ in range(rng.integers(0, 4))}) if v else [] for v in range(count)]


def random_flat(rng, edges, symbol="mix", choices=SIZES):
    """A program over ``edges``: sources read the input, and what nobody reads is an output."""
    sizes = [int(rng.choice(choices)) for _ in edges]
    uses = [Use(Source("arena", v), (size,), "float64") for v, size in enumerate(sizes)]
    given = Use(Source("input", 0), (8,), "float64")
    calls = tuple(
        FlatCall(symbol, tuple(uses[r] for r in reads) or (given,), (sizes[v],), "float64")
        for v, reads in enumerate(edges)
    )
    read = {r for reads in edges for r in reads}
    outputs = tuple(use for v, use in enumerate(uses) if v not in read)
    return Flat(calls, outputs, {}, frozenset(), ())


def chains(*lengths):
    """Independent branches of so many nodes that meet in one last node."""
    edges, ends = [], []
    for length in lengths:
        for index in range(length):
            edges.append([len(edges) - 1] if index else [])
        ends.append(len(edges) - 1)
    return [*edges, ends]


def random_problem(rng, needs, lanes=None, transfers=True):
    """Costs in which two cores are up to twice as fast as one."""
    lanes = lanes or (cpu_lane(0, 2), cpu_lane(0, 1), cpu_lane(1, 1))
    alone, busy = [], []
    for _ in needs:
        one = float(rng.uniform(0.1, 2.0))
        two = one / float(rng.uniform(0.9, 2.0))
        slower = one * float(rng.uniform(1.0, 1.3))
        alone.append(tuple(two if lane.threads == 2 else one for lane in lanes))
        busy.append(tuple(two if lane.threads == 2 else slower for lane in lanes))
    sizes = [int(size) for size in rng.integers(0, 10_000, len(needs))]
    crossing = Link(0.01, 1e5) if transfers else Link()
    return Problem(lanes, tensors_of(needs, sizes), tuple(alone), {"cpu": tuple(busy)}, crossing)


def problem_of(lanes, needs, alone, busy=None, sizes=None, crossing=Link()):  # noqa: B008  (a frozen value)
    """A problem with one tensor for every subgraph that others read from."""
    return Problem(lanes, tensors_of(needs, sizes or [0] * len(needs)), alone, {"cpu": busy or alone}, crossing)


def device_problem(rng, needs, links=True):
    """Costs of two cores and a device with a memory of its own, which is faster in half of the subgraphs."""
    lanes = (cpu_lane(0, 2), Lane("sim:0", 2, 1, "sim:0"))
    cpu = [float(rng.uniform(0.1, 2.0)) for _ in needs]
    device = [cost * float(rng.uniform(0.2, 2.0)) for cost in cpu]
    alone = tuple((c, d if rng.random() < 0.9 else None) for c, d in zip(cpu, device, strict=True))
    slower = tuple((c * 1.1, d and d * 1.05) for c, d in alone)
    sizes = [int(size) for size in rng.integers(0, 10_000, len(needs))]
    ways = {("", "sim:0"): Link(0.01, 1e5), ("sim:0", ""): Link(0.02, 5e4)} if links else {}
    tensors = tensors_of(needs, sizes)
    return Problem(lanes, tensors, alone, {"cpu": slower, "sim": slower}, Link(), ways)
