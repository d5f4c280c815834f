"""An ONNX model cut into coarse subgraphs before anything is fused: each is a model, for any kind of device.

As DUET (IPDPS 2021) does, at the nodes that every path meets (``graph/partition.py``). The same subgraph can then be
compiled for a CPU and for a GPU, whose programs after layouts and fusion have nothing in common but their interface.
Only phases whose branches are worth running side by side are kept apart. Everything else between two of those is one
subgraph, so that operators in it can still be fused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto, load_model_from_string
from onnx.helper import tensor_dtype_to_np_dtype

from autotune.graph.partition import Phase, in_pieces, partition
from autotune.graph.placement import Link
from autotune.host.roofline import Roofline
from autotune.importer.conversion.packed_outputs import WHOLE, frame_of
from autotune.importer.guarded_import import Inputs, Sound, count_nodes, guarded
from autotune.importer.load import load_model
from autotune.importer.onnx_model.graph_walk import outer_reads
from autotune.importer.onnx_model.operator_splits import Share, split_operators
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.segments import Cutter
from autotune.importer.onnx_model.shapes import BYTE_LSTM
from autotune.importer.program import simplify
from schedules.vocabulary.errors import ModelError

LEAST_GAIN = 0.02
"""Share of the model's arithmetic that must lie beside a phase's longest branch: running it at the same time gains no
more than that share, and ``placing.WORTH`` is as much."""

PIECE = 0.25
"""Share of a device's memory that the weights of a subgraph take where a model exceeds it. Heuristic: each subgraph is
tuned for both lanes, and fewer leave less choice."""

MOST_PIECES = 12
"""About how many such subgraphs there are at most, however small the memory is. Heuristic."""

LEAST_SHARE = 0.002
"""Branches of less arithmetic than this share of the model form one subgraph with others of their phase. Heuristic."""

LEAST_OPERATOR = 0.05
"""Share of the model's arithmetic that an operator must be to be cut: each part is tuned for both lanes. Heuristic."""

LEAST_SPEEDUP = 1.2
"""Factor by which an operator must become faster by the bounds to be cut: what is behind it waits for both lanes, and
each part is less work for the same launch. Heuristic, not measured."""

RECURRENT = {"LSTM": 2, "GRU": 2, "RNN": 2, BYTE_LSTM: 6}
"""Recurrent operator → its input that holds R."""


@dataclass(frozen=True)
class Branch:
    """A subgraph as a model; values pass between subgraphs by name.

    Attributes:
        name: phase and branch, such as ``2.1``.
        model: its inputs are the model's or earlier subgraphs' outputs.
    """

    name: str
    model: ModelProto


@dataclass(frozen=True)
class Branches:
    """A model as subgraphs.

    Attributes:
        parts: in an order in which they can run; one if nothing can run side by side.
        joins: value → its parts, where subgraphs read the whole of what others computed in parts.
    """

    parts: tuple[Branch, ...]
    joins: Mapping[str, tuple[str, ...]]


def cut_into_branches(path: Path, inputs: Inputs, share: Share, memory_bytes: int = 0) -> tuple[ModelProto, Branches]:
    """The checked model at ``path``, and it cut where branches are worth running side by side.

    Args:
        share: as ``split_operators`` has it.
        memory_bytes: as ``cut_branches`` has it.

    Raises:
        ModelError, UsageError: as ``import_model``.
    """

    def work(sound: Sound) -> tuple[list[tuple[str, bytes]], Mapping[str, tuple[str, ...]]]:
        model = load_model(path, inputs)
        sound(count_nodes(model))
        cut = cut_branches(simplify(model), share, memory_bytes)
        return [(branch.name, branch.model.SerializeToString()) for branch in cut.parts], cut.joins

    model, (texts, joins) = guarded(path, inputs, work)
    return model, Branches(tuple(Branch(name, load_model_from_string(text)) for name, text in texts), joins)


def cut_branches(model: ModelProto, share: Share = lambda _node, _scope: None, memory_bytes: int = 0) -> Branches:
    """``model`` as subgraphs.

    Args:
        model: simplified, with shapes.
        share: of operators to be cut, asked of those that lie in no branch.
        memory_bytes: of the device. The weights of a model that exceed it are cut into subgraphs of ``PIECE`` of it, so
            that some can stay on the CPU; 0 for enough memory.

    Raises:
        ModelError: if the shape of a value between two subgraphs is not known, or the host has a part in the model.
    """
    if frame_of(model) is not None:
        raise ModelError(f"{model.graph.name or 'the model'}: {WHOLE}; use one lane")
    straight = {
        model.graph.node[index].output[0]
        for name, members in coarse(partition(_edges(model.graph.node)).phases, _work(model))
        for index in members
        if "." not in name  # what lies in a branch has something beside it already
    }
    model, splits = split_operators(model, lambda node, at: share(node, at) if node.output[0] in straight else None)
    nodes, work = list(model.graph.node), _work(model)
    cutter, edges = Cutter(model), _edges(nodes)
    place = {name: index for index, node in enumerate(nodes) for name in node.output}
    groups: list[tuple[str, list[int]]] = []
    begin = stage = 0
    # What comes before a cut operator in the order of the nodes needs nothing of it, nor of what comes after.
    for end, halves in (*((min(place[n] for n in split.produced[0]), split) for split in splits), (len(nodes), None)):
        groups += coarse(partition(_within(edges, begin, end)).phases, work[begin:end], sum(work), begin, stage)
        stage = 1 + max((int(name.partition(".")[0]) for name, _ in groups), default=-1)
        if halves is not None:
            groups += [(f"{stage}.{n}", sorted(place[name] for name in half)) for n, half in enumerate(halves.produced)]
            stage, begin = stage + 1, place[halves.value] + 1
    sizes = _weight_bytes(model)
    if memory_bytes and sum(sizes) > memory_bytes:
        piece = max(PIECE * memory_bytes, sum(sizes) / MOST_PIECES)
        cut = (in_pieces(members, name, edges, sizes.__getitem__, piece) for name, members in groups)
        groups = [(part.name, list(part.nodes)) for parts in cut for part in parts]
    parts = (Branch(name, cutter.part([nodes[index] for index in members])) for name, members in groups)
    return Branches(tuple(parts), {split.value: split.parts for split in splits})


def _work(model: ModelProto) -> list[float]:
    """Arithmetic of every node."""
    scope = Scope(model)
    return [multiply_adds(node, scope) for node in model.graph.node]


def _weight_bytes(model: ModelProto) -> list[int]:
    """Bytes of constants that each node reads."""
    sizes = {tensor.name: tensor_bytes(tensor) for tensor in model.graph.initializer}
    return [sum(sizes.get(name, 0) for name in set(node.input)) for node in model.graph.node]


def tensor_bytes(tensor: TensorProto) -> int:
    """Return the size of a constant as it is computed with."""
    return int(math.prod(tensor.dims) * tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def _within(edges: Sequence[Sequence[int]], begin: int, end: int) -> list[list[int]]:
    """The edges among nodes ``begin`` … ``end`` − 1, which are numbered from 0."""
    return [[source - begin for source in edges[node] if source >= begin] for node in range(begin, end)]


def worth_cutting(cores: Roofline | None, devices: Sequence[Roofline], link: Link) -> Share:
    """Return a function that decides which operators are cut between two lanes, and the share of the first part.

    Both parts should end together. What a cut saves is taken from the bounds of the two lanes alone, with the copy of
    the input to a device, and of its part of the output back; between two devices both go through the host.

    Args:
        cores: of the widest lane of cores; None where no cores are named.
        link: between the host's memory and a device's.
    """
    lanes = [*([] if cores is None else [cores]), *devices]

    def share(node: NodeProto, scope: Scope) -> float | None:
        work = multiply_adds(node, scope)
        if work < LEAST_OPERATOR * sum(multiply_adds(other, scope) for other in scope.graph.node):
            return None
        read, written = (4 * math.prod(scope.shapes[name]) for name in (node.input[0], node.output[0]))
        moved = read + written + 4 * math.prod(scope.shapes[node.input[1]])
        bounds = [roofline.bound_s(int(2 * work), moved) for roofline in lanes]

        def together(one: int, other: int) -> tuple[float, float]:
            own = bounds[other] / (bounds[one] + bounds[other])
            legs = 1 if cores is not None and one == 0 else 2
            copies = link.seconds(read) + link.seconds(int((1.0 - own) * written))
            return own * bounds[one] + legs * copies, own

        seconds, own = min((together(*pair) for pair in combinations(range(len(lanes)), 2)), default=(math.inf, 0.0))
        return own if seconds * LEAST_SPEEDUP <= min(bounds) else None

    return share


def _edges(nodes: Sequence[NodeProto]) -> list[list[int]]:
    """For every node the nodes that it reads from."""
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    return [sorted({maker[name] for name in outer_reads(node) if name in maker}) for node in nodes]


def coarse(
    phases: Sequence[Phase], work: Sequence[float], total: float = 0.0, first: int = 0, stage: int = 0
) -> list[tuple[str, list[int]]]:
    """(name, nodes) of every subgraph. Pure.

    Args:
        phases: of ``partition``.
        work: of every node; any unit.
        total: of the whole model, if the nodes are only some of its.
        first: number of the first node.
        stage: of the first subgraph, for its name.
    """
    total = total or sum(work) or 1.0
    subgraphs: list[tuple[str, list[int]]] = []
    straight: list[int] = []

    def close() -> None:
        nonlocal stage
        if straight:
            subgraphs.append((str(stage), sorted(straight)))
            straight.clear()
            stage += 1

    for phase in phases:
        branches = [[node for part in branch for node in part.nodes] for branch in phase.branches]
        sizes = [sum(work[node] for node in branch) / total for branch in branches]
        if len(branches) == 1 or sum(sizes) - max(sizes) < LEAST_GAIN:
            straight.extend(node for branch in branches for node in branch)
            continue
        close()
        small = [node for branch, size in zip(branches, sizes, strict=True) if size < LEAST_SHARE for node in branch]
        kept = [branch for branch, size in zip(branches, sizes, strict=True) if size >= LEAST_SHARE]
        kept += [small] if small else []
        subgraphs += [(f"{stage}.{number}", sorted(branch)) for number, branch in enumerate(kept)]
        stage += 1
    close()
    return [(name, [first + node for node in own]) for name, own in subgraphs]


def multiply_adds(node: NodeProto, scope: Scope) -> float:
    """About how much arithmetic a node is: multiply-adds of products, elements of everything else."""
    shapes = [scope.shapes.get(name) for name in node.input]
    elements = sum(math.prod(scope.shapes[name]) for name in node.output if name in scope.shapes)
    weight = shapes[1] if len(shapes) > 1 and shapes[1] is not None else ()
    first = shapes[0] if shapes and shapes[0] is not None else ()
    if node.op_type == "Conv" and weight:
        return float(elements * math.prod(weight[1:]))
    if node.op_type == "ConvTranspose" and weight:
        return float(math.prod(first) * math.prod(weight[1:]))
    if node.op_type in ("MatMul", "Gemm") and first and weight:
        return float(math.prod(first) * weight[-1] if node.op_type == "MatMul" else elements * min(weight))
    place = RECURRENT.get(node.op_type, len(shapes))
    if place < len(shapes) and (recurrence := shapes[place]) is not None and len(first) == 3:
        hidden, rows = sorted(recurrence[1:])  # in bytes it lies transposed
        return float(first[0] * first[1] * rows * (first[2] + hidden))
    return float(elements)
