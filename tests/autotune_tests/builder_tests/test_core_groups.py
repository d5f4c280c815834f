"""Groups of cores: costs are measured once and then read, and every size of lane is priced by its own kernels."""

from pathlib import Path

import numpy as np
import pytest

from autotune.artifact.plan import Choice, Plan
from autotune.builder.core_groups import CoreGroups, aligned_flats
from autotune.builder.lane_profiles import Transfer
from autotune.builder.placing import fastest
from autotune.builder.profile_cache import ProfileCache
from autotune.graph.flat import Flat, FlatCall, Source, Use
from autotune.graph.lanes import parse_lanes
from autotune.host.pages import ALIGNMENT
from autotune.measure.measurer import symbol_of
from schedules.lower import BASELINE
from schedules.vocabulary.errors import MissingRecordError
from tests.autotune_tests.graph_tests.dags import chains
from tests.autotune_tests.tiny import target
from tuning_logs.sql_store import memory_log


class Profiler:
    """Two cores are as fast as one; what was measured."""

    def __init__(self):
        self.measured = []

    def costs(self, subgraphs, threads, busy):
        self.measured.append((threads, busy))
        return {part.name: len(part.nodes) * 1e-3 for part in subgraphs}

    def transfer(self, subgraphs):
        return Transfer(1e-6, 1e-9)

    def end_to_end(self, candidates):
        self.measured.append("whole")
        return [1.0 if len(steps.groups) == 1 else 0.5 for steps in candidates]

    def ratios(self, one, other):
        self.measured.append("ratios")
        return 1.5, 2.0, 2.5

    def taken(self, steps):
        self.measured.append("taken")
        return {group.name: group.calls * 1e-3 for group in steps.groups}


def groups(log, frozen=False, missing=()):
    """Two equal branches of three calls."""
    uses = [Use(Source("arena", call), (4,), "float32") for call in range(7)]
    read_first = (Use(Source("input", 0), (4,), "float32"),)
    calls = tuple(
        FlatCall(symbol_of(f"key{number}"), tuple(uses[read] for read in reads) or read_first, (4,), "float32")
        for number, reads in enumerate(chains(3, 3))
    )
    flat = Flat(calls, (uses[-1],), {}, frozenset(), ())
    plan = Plan(target(), tuple(Choice(f"key{number}", BASELINE, None) for number in range(7)))
    objects = {call.symbol: Path() for call in calls}
    few = {symbol: path for symbol, path in objects.items() if symbol not in missing}
    cache = ProfileCache(log, target(), frozen)
    core_groups = CoreGroups(
        {2: plan, 1: plan}, {2: flat, 1: flat}, {2: objects, 1: few}, parse_lanes("auto", 2), 2, cache, (), Path()
    )
    core_groups.__dict__["_profiler"] = Profiler()
    return core_groups


def test_branches_run_side_by_side_where_that_is_faster():
    best = fastest(groups(memory_log()))
    assert best.candidate.placed.uses_several_lanes
    assert (best.seconds, best.one_lane_s) == (0.5, 1.0)


def test_a_frozen_run_reads_what_was_measured_and_measures_nothing():
    log = memory_log()
    before = fastest(groups(log))
    frozen = groups(log, frozen=True)
    after = fastest(frozen)
    assert frozen.__dict__["_profiler"].measured == []
    assert after.candidate.placed.placement == before.candidate.placed.placement
    assert after.seconds == before.seconds
    with pytest.raises(MissingRecordError, match="profiles of subgraphs on lanes of 2 threads"):
        fastest(groups(memory_log(), frozen=True))


def test_costs_with_busy_neighbours_are_measured_only_for_lanes_that_have_neighbours():
    core_groups = groups(memory_log())
    next(iter(core_groups.cuts()))
    assert core_groups.__dict__["_profiler"].measured == [(2, False), (1, False), (1, True)]


def test_a_subgraph_without_kernels_for_a_lane_cannot_run_there():
    core_groups = groups(memory_log(), missing={symbol_of("key6")})
    subgraphs, problem = next(iter(core_groups.cuts()))
    last = next(number for number, part in enumerate(subgraphs) if 6 in part.nodes)
    assert [cost is None for cost in problem.alone[last]] == [False, True, True]


def test_weights_of_several_programs_are_copied_once_and_aligned():
    shared, own = np.arange(5, dtype=np.float32), np.ones(3, np.int8)
    one, two = (Flat((), (), {}, frozenset(), weights) for weights in ((shared,), (own, shared)))
    aligned = aligned_flats({1: one, 2: two})
    assert aligned[1].weights[0] is aligned[2].weights[1]
    np.testing.assert_array_equal(aligned[2].weights[1], shared)
    np.testing.assert_array_equal(aligned[2].weights[0], own)
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in aligned[2].weights)
