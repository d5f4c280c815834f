"""Random graphs, flat programs over them, and costs."""

from __future__ import annotations

from autotune.graph.flat import Flat, FlatCall, Source, Use
from autotune.graph.lanes import Lane, cpu_lane
from autotune.graph.placement import Link, Problem, tensors_of

CORES = (cpu_lane(0, 2),)
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
    read_first = Use(Source("input", 0), (8,), "float64")
    calls = tuple(
        FlatCall(symbol, tuple(uses[r] for r in reads) or (read_first,), (sizes[v],), "float64")
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


def device_problem(rng, needs, links=True, devices=1, cores=CORES):
    """Costs of cores and devices with memories of their own, each of which is faster in half of the subgraphs.

    Args:
        cores: lanes of cores, which are as fast as each other.
    """
    first = 1 + max(lane.cores[-1] for lane in cores)
    lanes = (*cores, *(Lane(f"sim:{n}", first + n, 1, f"sim:{n}") for n in range(devices)))
    cpu = [float(rng.uniform(0.1, 2.0)) for _ in needs]
    columns = [[cost * float(rng.uniform(0.2, 2.0)) for cost in cpu] for _ in range(devices)]
    rows = zip(cpu, *columns, strict=True)
    alone = tuple((*[c] * len(cores), *(d if rng.random() < 0.9 else None for d in others)) for c, *others in rows)
    factors = (*[1.1] * len(cores), *[1.05] * devices)
    slower = tuple(tuple(c and c * factor for c, factor in zip(row, factors, strict=True)) for row in alone)
    sizes = [int(size) for size in rng.integers(0, 10_000, len(needs))]
    there = {("", f"sim:{n}"): Link(0.01, 1e5) for n in range(devices)}
    back = {(f"sim:{n}", ""): Link(0.02, 5e4) for n in range(devices)}
    tensors = tensors_of(needs, sizes)
    return Problem(lanes, tensors, alone, {"cpu": slower, "sim": slower}, Link(), there | back if links else {})
