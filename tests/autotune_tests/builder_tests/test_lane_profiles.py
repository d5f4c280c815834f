"""Profiles of subgraphs: which subgraphs are timed, in an order in which they can run."""

import numpy as np

from autotune.builder.lane_profiles import LaneProfiler, neighbours
from autotune.graph.flat import Flat, FlatCall, Source, Use
from autotune.graph.lanes import cpu_lane
from autotune.graph.partition import Subgraph
from autotune.graph.steps import Group, Operand, Step, Steps

SECONDS = {"left": 2.0, "right": 3.0}


class Span:
    def __init__(self, group, began_s, ended_s):
        self.group, self.began_s, self.ended_s = group, began_s, ended_s


class Executor:
    """Runs groups one after the other; crossing to another lane takes 5 µs."""

    def __init__(self, libraries, steps, weights, cpus):
        self.groups, self.cpus = steps.groups, cpus

    def timeline(self, inputs):
        now, spans, lane = 0.0, [], 0
        for group in self.groups:
            now += 5e-6 * (group.lane != lane)
            lane = group.lane
            spans.append(Span(group, now, now + SECONDS.get(group.name, 1e-3)))
            now = spans[-1].ended_s
        return spans

    def close(self):
        """Nothing to end."""


def profiler(monkeypatch, cores=2):
    monkeypatch.setattr("autotune.builder.lane_profiles.NativeExecutor", Executor)
    use = [Use(Source("arena", call), (4,), "float32") for call in range(3)]
    read_first = Use(Source("input", 0), (4,), "float32")
    calls = (
        FlatCall("a", (read_first,), (4,), "float32"),
        FlatCall("b", (read_first,), (4,), "float32"),
        FlatCall("c", (use[0], use[1]), (4,), "float32"),
    )
    flat = Flat(calls, (use[2],), {}, frozenset(), ())
    return LaneProfiler({}, {1: flat}, (), list(range(cores)))


def test_only_the_subgraphs_asked_for_are_timed(monkeypatch):
    parts = [Subgraph("left", (0,)), Subgraph("right", (1,))]
    assert profiler(monkeypatch).costs(parts, 1, busy=False) == SECONDS
    assert profiler(monkeypatch, 3).costs(parts[1:], 1, busy=True) == {"right": 3.0}


def test_crossing_costs_the_gap_between_groups(monkeypatch):
    parts = [Subgraph("left", (0,)), Subgraph("right", (1,)), Subgraph("last", (2,))]
    transfer = profiler(monkeypatch).transfer(parts)
    np.testing.assert_allclose(transfer.latency_s, 5e-6, rtol=1e-6)
    assert transfer.s_per_byte == 0.0


def test_whole_models_are_timed_to_the_end_of_their_last_group(monkeypatch):
    monkeypatch.setattr("autotune.runtime.model_timing.QUIET_S", 0.0)
    operand = Operand("arena", 0, (4,), "float32")
    steps = Steps((Step("a", (operand,)),), (operand,), 64, (), (cpu_lane(0, 1),), (Group("left", 0, 1),))
    assert profiler(monkeypatch).end_to_end([steps]) == [2.0]


def test_neighbours_fill_the_other_cores_with_lanes_of_the_same_size_or_what_fits():
    assert list(neighbours(1, [1, 2], 2)) == [(1, 1)]
    assert list(neighbours(1, [1, 3], 4)) == [(1, 1), (2, 1), (3, 1)]
    assert list(neighbours(3, [1, 3], 4)) == [(3, 1)]
    assert list(neighbours(2, [1, 2], 4)) == [(2, 2)]
    assert list(neighbours(2, [2], 2)) == []
