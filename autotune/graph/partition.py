"""Cutting a graph into subgraphs that can be placed on lanes. Pure.

Notation: nodes are 0 … n − 1 in an order that respects all edges; ``edges[v]`` are the nodes that v reads.

After DUET (IPDPS 2021): the graph is cut at the nodes that every path from an input to an output meets. Between two of
them there is nothing, or a *multi-path phase*: its independent branches are a subgraph each. Nodes that every path
meets and that follow each other are a *sequential phase*, one subgraph. Subgraphs are coarse, so that fusion inside
them stays intact.

Groups of CPU cores run kernels, so there the graph is cut after fusion: a kernel that reads two branches joins them and
belongs to neither. Beyond the paper, a branch that is much longer than the others may be cut further at the nodes that
every path through it meets (``refine``), so that a part of it can run on all cores and the rest beside the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

Edges = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Subgraph:
    """Some nodes that run in a row on one lane.

    Attributes:
        name: phase and branch, such as ``2.1``, with a letter for the part of a branch that was refined.
        nodes: ascending.
    """

    name: str
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Phase:
    """The nodes between two cuts.

    Attributes:
        branches: one for a sequential phase; the independent branches of a multi-path phase, each a chain of one or
            more subgraphs.
    """

    branches: tuple[tuple[Subgraph, ...], ...]

    @property
    def is_multi_path(self) -> bool:
        """Whether anything can run side by side."""
        return len(self.branches) > 1


@dataclass(frozen=True)
class Partition:
    """A graph cut into phases; each comes after all before it."""

    phases: tuple[Phase, ...]

    @property
    def subgraphs(self) -> tuple[Subgraph, ...]:
        """All of them, phase by phase."""
        return tuple(part for phase in self.phases for branch in phase.branches for part in branch)


def subgraph_needs(subgraphs: Sequence[Subgraph], edges: Edges) -> tuple[tuple[int, ...], ...]:
    """For every subgraph the subgraphs that it reads from, by position, ascending."""
    owner = {node: position for position, part in enumerate(subgraphs) for node in part.nodes}
    return tuple(
        tuple(sorted({owner[read] for node in part.nodes for read in edges[node]} - {position}))
        for position, part in enumerate(subgraphs)
    )


def partition(edges: Edges) -> Partition:
    """The phases of a graph, one subgraph per branch."""
    phases: list[Phase] = []
    straight: list[int] = []

    def close() -> None:
        if straight:
            phases.append(Phase(((Subgraph(str(len(phases)), tuple(sorted(straight))),),)))
            straight.clear()

    for run in _runs(range(len(edges)), edges):
        branches = _components(run, edges)
        if len(branches) == 1:
            # One node that all paths meet, or a tangle of branches that need each other: nothing to run side by side.
            straight.extend(branches[0])
        else:
            close()
            named = enumerate(branches)
            phases.append(Phase(tuple((Subgraph(f"{len(phases)}.{index}", tuple(branch)),) for index, branch in named)))
    close()
    return Partition(tuple(phases))


def refine(whole: Partition, edges: Edges, cost: Callable[[int], float], parts: int) -> Partition:
    """``whole`` with the branches of every multi-path phase cut into pieces of about equal cost.

    Args:
        cost: of one node; any unit.
        parts: into how many pieces the costliest branch of a phase is cut, where its nodes allow it; the others into
            pieces of about the same cost.
    """
    return Partition(
        tuple(_refined(phase, edges, cost, parts) if phase.is_multi_path else phase for phase in whole.phases)
    )


def _refined(phase: Phase, edges: Edges, cost: Callable[[int], float], parts: int) -> Phase:
    branches = [[node for part in branch for node in part.nodes] for branch in phase.branches]
    piece = max(sum(map(cost, branch)) for branch in branches) / parts
    return Phase(
        tuple(
            tuple(in_pieces(branch, old[0].name, edges, cost, piece))
            for branch, old in zip(branches, phase.branches, strict=True)
        )
    )


def in_pieces(
    branch: Sequence[int], name: str, edges: Edges, cost: Callable[[int], float], piece: float
) -> list[Subgraph]:
    """Cut a branch where all its paths meet, each piece as soon as it costs ``piece`` or the rest is not worth one.

    Args:
        name: of the branch, which pieces get a letter behind.
        cost: of one node; any unit.
    """
    pieces: list[list[int]] = [[]]
    left = sum(map(cost, branch))
    for run in _runs(branch, edges):
        if pieces[-1] and sum(map(cost, pieces[-1])) >= piece and left >= piece / 2:
            pieces.append([])
        pieces[-1] += run
        left -= sum(map(cost, run))
    if len(pieces) == 1:
        return [Subgraph(name, tuple(sorted(branch)))]
    return [Subgraph(f"{name}{_letter(index)}", tuple(sorted(nodes))) for index, nodes in enumerate(pieces)]


def untangle(whole: Partition, edges: Edges, most: int) -> Partition:
    """``whole`` with every tangle, branches that need each other, as the graph of its chains.

    A chain is nodes of which each is all that the next one reads of the tangle, and is read by it alone. The subgraphs
    of a phase then need each other, as ``subgraph_needs`` tells.

    Args:
        most: chains of one tangle; one of more, which would take long to place, stays a subgraph.
    """
    phases: list[Phase] = []
    for phase in whole.phases:
        nodes = [node for branch in phase.branches for part in branch for node in part.nodes]
        runs = [nodes] if phase.is_multi_path else _runs(nodes, edges)
        for run in runs:
            chains = _chains(run, edges)
            if 1 < len(chains) <= most:
                named = enumerate(chains)
                phases.append(Phase(tuple((Subgraph(f"{len(phases)}.{n}", tuple(chain)),) for n, chain in named)))
            elif phase.is_multi_path:
                phases.append(_renamed(phase, len(phases)))
            elif phases and not phases[-1].is_multi_path:
                before = phases[-1].branches[0][0]
                phases[-1] = Phase(((Subgraph(before.name, (*before.nodes, *sorted(run))),),))
            else:
                phases.append(Phase(((Subgraph(str(len(phases)), tuple(sorted(run))),),)))
    return Partition(tuple(phases))


def _renamed(phase: Phase, number: int) -> Phase:
    named = (
        replace(part, name=f"{number}.{part.name.partition('.')[2]}") for branch in phase.branches for part in branch
    )
    parts = iter(list(named))
    return Phase(tuple(tuple(next(parts) for _ in branch) for branch in phase.branches))


def _chains(nodes: Sequence[int], edges: Edges) -> list[list[int]]:
    """``nodes`` as chains, in an order in which they can run."""
    inside = set(nodes)
    readers: dict[int, list[int]] = {node: [] for node in nodes}
    for node in nodes:
        for read in inside & set(edges[node]):
            readers[read].append(node)
    chains: dict[int, list[int]] = {}  # by last node
    for node in sorted(nodes):
        (before, *others) = sorted(inside & set(edges[node])) or (-1,)
        joins = before >= 0 and not others and len(readers[before]) == 1 and before in chains
        chains[node] = [*(chains.pop(before) if joins else ()), node]
    # A chain can run after all that its first node reads; its later nodes read nothing else of the tangle.
    return sorted(chains.values(), key=lambda chain: chain[0])


def _letter(index: int) -> str:
    return chr(ord("a") + index % 26) * (1 + index // 26)


def _runs(nodes: Iterable[int], edges: Edges) -> list[list[int]]:
    """Nodes that every path meets, each alone, and what lies between two of them, each time as one list.

    A node is met by every path if no edge leads past it: from an earlier node, or into the graph, to a later one, or
    out of the graph.
    """
    order = sorted(nodes)
    place = {node: index for index, node in enumerate(order)}
    reads = [[place[read] for read in edges[node] if read in place] for node in order]
    last = [len(order)] * len(order)
    for reader, sources in enumerate(reads):
        for source in sources:
            last[source] = reader
    # passed[i]: how many edges lead past node i. An edge from a to b passes a + 1 … b − 1.
    change = [0] * (len(order) + 2)

    def edge(start: int, end: int) -> None:
        change[start + 1] += 1
        change[end] -= 1

    for index, sources in enumerate(reads):
        if not sources:
            edge(-1, index)
    for index, reader in enumerate(last):
        edge(index, reader)
    runs: list[list[int]] = []
    passing, between = 0, False
    for index, node in enumerate(order):
        passing += change[index]
        if passing == 0:
            runs.append([node])
            between = False
        elif between:
            runs[-1].append(node)
        else:
            runs.append([node])
            between = True
    return runs


def _components(nodes: Sequence[int], edges: Edges) -> list[list[int]]:
    """Nodes that are joined by edges among ``nodes``, in the order of their first node."""
    root = {node: node for node in nodes}

    def find(node: int) -> int:
        while root[node] != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for node in nodes:
        for read in edges[node]:
            if read in root:
                one, other = sorted((find(node), find(read)))
                root[other] = one
    groups: dict[int, list[int]] = {}
    for node in nodes:
        groups.setdefault(find(node), []).append(node)
    return list(groups.values())
