"""Partition: every node in one subgraph, no cycles between subgraphs, branches where there are branches."""

import graphlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.graph.partition import Subgraph, partition, refine, subgraph_needs, untangle
from tests.autotune_tests.graph_tests.dags import chains, random_edges

seeds = st.integers(0, 2**32 - 1)


def names(cut):
    return [[[part.nodes for part in branch] for branch in phase.branches] for phase in cut.phases]


@given(seeds, st.integers(1, 5))
def test_every_node_is_in_one_subgraph_and_subgraphs_have_no_cycle(seed, parts):
    rng = np.random.default_rng(seed)
    edges = random_edges(rng)
    costs = rng.uniform(0, 1, len(edges))
    for cut in (partition(edges), refine(partition(edges), edges, lambda node: costs[node], parts)):
        assert sorted(node for part in cut.subgraphs for node in part.nodes) == list(range(len(edges)))
        assert len({part.name for part in cut.subgraphs}) == len(cut.subgraphs)
        for position, needs in enumerate(subgraph_needs(cut.subgraphs, edges)):
            assert all(source < position for source in needs), "subgraphs are listed in an order that can be run"


@given(seeds)
def test_the_composition_computes_the_model(seed):
    edges = random_edges(np.random.default_rng(seed))

    def value(node, values):
        return hash((node, *(values[read] for read in edges[node])))

    whole: dict[int, int] = {}
    for node in range(len(edges)):
        whole[node] = value(node, whole)
    cut = partition(edges)
    needs = subgraph_needs(cut.subgraphs, edges)
    composed: dict[int, int] = {}
    for position in graphlib.TopologicalSorter(dict(enumerate(needs))).static_order():
        for node in cut.subgraphs[position].nodes:
            composed[node] = value(node, composed)
    assert composed == whole


@given(seeds)
def test_branches_of_a_phase_do_not_need_each_other(seed):
    edges = random_edges(np.random.default_rng(seed))
    for phase in partition(edges).phases:
        inside = [{node for part in branch for node in part.nodes} for branch in phase.branches]
        for branch in inside:
            others = set().union(*(other for other in inside if other is not branch))
            assert not {read for node in branch for read in edges[node]} & others


def test_branches_that_meet_at_the_end():
    assert names(partition(chains(2, 3))) == [[[(0, 1)], [(2, 3, 4)]], [[(5,)]]]


def test_a_chain_is_one_subgraph():
    assert names(partition([[], [0], [1], [2]])) == [[[(0, 1, 2, 3)]]]


def test_inception_is_a_phase_per_module():
    #      0 → (1) (2 → 3) (4) → 5 → 6 → (7) (8) → 9
    edges = [[], [0], [0], [2], [0], [1, 3, 4], [5], [6], [6], [7, 8]]
    assert names(partition(edges)) == [
        [[(0,)]],
        [[(1,)], [(2, 3)], [(4,)]],
        [[(5, 6)]],
        [[(7,)], [(8,)]],
        [[(9,)]],
    ]


def test_a_shortcut_is_no_branch_of_its_own():
    assert names(partition([[], [0], [1], [0, 2], [3]])) == [[[(0, 1, 2, 3, 4)]]]


def test_heads_that_never_meet_are_branches():
    assert names(partition([[], [0], [0], [2]])) == [[[(0,)]], [[(1,)], [(2, 3)]]]


def test_the_longer_branch_is_cut_into_pieces_of_about_equal_cost():
    edges = chains(8, 2)
    cut = refine(partition(edges), edges, lambda node: 1.0, 4)
    assert [part.name for part in cut.subgraphs] == ["0.0a", "0.0b", "0.0c", "0.0d", "0.1", "1"]
    assert [len(part.nodes) for part in cut.subgraphs[:4]] == [2, 2, 2, 2]


@pytest.mark.parametrize("parts", [1, 3])
def test_a_branch_without_cuts_stays_whole(parts):
    edges = [[], [0], [0], [1, 2], [], [3, 4]]  # a diamond beside a single node
    diamond = refine(partition(edges), edges, lambda node: 1.0, parts).subgraphs[0]
    assert set(diamond.nodes) <= {0, 1, 2, 3}
    assert {1, 2} <= set(diamond.nodes) or not {1, 2} & set(diamond.nodes)


def test_needs_are_between_different_subgraphs():
    parts = (Subgraph("a", (0, 1)), Subgraph("b", (2,)))
    assert subgraph_needs(parts, [[], [0], [0, 1]]) == ((), (0,))


def test_branches_that_need_each_other_become_a_graph_of_chains():
    #     0 → 1 → 2 → 5 → 7,  0 → 3 → 4 → 6 → 7,  and 2 → 6 across
    edges = [[], [0], [1], [0], [3], [2], [4, 2], [5, 6]]
    tangle = partition(edges)
    assert [part.nodes for part in tangle.subgraphs] == [tuple(range(8))]
    cut = untangle(tangle, edges, 12)
    assert [part.nodes for part in cut.subgraphs] == [(0,), (1, 2), (3, 4), (5,), (6,), (7,)]
    assert subgraph_needs(cut.subgraphs, edges) == ((), (0,), (0,), (1,), (1, 2), (3, 4))
    assert untangle(tangle, edges, 3) == tangle


def test_what_is_no_tangle_stays_as_it_is():
    for edges in (chains(3, 2), [[], [0], [1, 0], [2]]):
        assert untangle(partition(edges), edges, 12) == partition(edges)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_graphs_of_chains_hold_every_node_once_and_can_run(seed):
    edges = random_edges(np.random.default_rng(seed), 20)
    cut = untangle(partition(edges), edges, 12)
    assert sorted(node for part in cut.subgraphs for node in part.nodes) == list(range(len(edges)))
    assert len({part.name for part in cut.subgraphs}) == len(cut.subgraphs)
    for position, needs in enumerate(subgraph_needs(cut.subgraphs, edges)):
        assert all(source < position for source in needs)
