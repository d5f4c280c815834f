"""A model cut into parts that can be imported and parts that cannot.

Nodes that read or make something of unknown shape cannot be imported; other nodes that fail are found by importing
ever smaller runs of nodes. Then every node gets a level: nodes of one kind that feed each other share it, and it rises
wherever the kind changes, so that a level needs nothing but lower ones. A level without a product or convolution is
left to ONNX Runtime too where others have some: nothing of it is worth a segment of its own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.onnx_model.graph_edits import keep_only
from autotune.importer.onnx_model.graph_walk import (
    RANDOM,
    attributes_of,
    outer_reads,
    readers_of,
    subgraphs,
    walk_nodes,
)
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS, fixed_shape, infer_shapes, skeleton, true_inputs
from schedules.vocabulary.errors import AutotuneError, ModelError, UnsupportedError, first_line

Attempt = Callable[[ModelProto], object]

PRODUCTS = frozenset(
    {"Attention", "Conv", "ConvTranspose", "DeformConv", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"}
)
"""Operators whose arithmetic is worth a tuned segment; those that hold one's name, such as ``QLinearConv``, are too."""


@dataclass(frozen=True)
class Segment:
    """Part of a model, as a model of its own; values pass between segments by name.

    Attributes:
        is_fallback: whether it cannot be imported and is left to ONNX Runtime.
        model: its nodes; its inputs are the model's or other segments' outputs.
    """

    is_fallback: bool
    model: ModelProto

    @property
    def operators(self) -> tuple[str, ...]:
        """Kinds of its nodes, each once, with the domain of those that are not ONNX's own."""
        kinds = (f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in self.model.graph.node)
        return tuple(dict.fromkeys(kinds))


def split(model: ModelProto, attempt: Attempt) -> list[Segment]:
    """``model`` as segments in an order in which they can run.

    Args:
        model: flat (``flat_model.flatten``), with shapes as far as they can be inferred.
        attempt: imports a model; raises any error where it cannot.

    Returns:
        One fallback partition if nothing of the model can be imported.
    """
    nodes = list(model.graph.node)
    cutter = Cutter(model)
    failing = {id(node) for node in nodes if not cutter.is_static(node)}
    static = [node for node in nodes if id(node) not in failing]
    failing.update(id(node) for node in _failing(static, cutter, attempt) if static)
    groups = _groups(nodes, failing)
    light = [level for level, group in groups.items() if level % 2 == 0 and not any(map(_is_product, group))]
    if len(light) < sum(level % 2 == 0 for level in groups):  # another has something to tune
        failing.update(id(node) for level in light for node in groups[level])
        groups = _groups(nodes, failing)
    return [Segment(id(groups[level][0]) in failing, cutter.part(groups[level])) for level in sorted(groups)]


def refuse_random(model: ModelProto) -> None:
    """Refuse operators that draw other numbers at every run: what is behind them could not be verified.

    Raises:
        UnsupportedError: naming one.
    """
    for node in walk_nodes(model.graph.node):
        seeded = any(attribute.name == "seed" for attribute in node.attribute)
        if node.op_type in RANDOM and node.domain in STANDARD_DOMAINS and not seeded:
            raise UnsupportedError(
                f"operator {node.op_type} (node {node.name!r}) is not supported: it draws random numbers in the body "
                "of a loop or an If, so outputs cannot be verified; let it draw outside, or give the node a seed"
            )


def declare_foreign(model: ModelProto) -> None:
    """Note type and shape of what operators make that are not ONNX's own, in place, as ONNX Runtime infers them.

    Without ONNX Runtime, or where it does not know either, they stay unknown.

    Raises:
        ModelError: if ONNX Runtime refuses the model.
    """
    foreign = [name for n in model.graph.node if n.domain not in STANDARD_DOMAINS for name in n.output if name]
    declared = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    unknown = [name for name in foreign if name not in declared or fixed_shape(declared[name]) is None]
    if not unknown or importlib.util.find_spec("onnxruntime") is None:
        return
    import onnxruntime  # optional: an extra

    asked = skeleton(model)
    outputs = {value.name for value in asked.graph.output}
    asked.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in unknown if name not in outputs)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        with third_party():
            session = onnxruntime.InferenceSession(
                asked.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
    except ThirdPartyError as error:
        raise ModelError(f"ONNX Runtime refuses the model too: {error}; check its export") from error
    for value in session.get_outputs():
        is_fixed = value.type.startswith("tensor(") and all(isinstance(size, int) for size in value.shape)
        if value.name in unknown and is_fixed:
            kind = value.type.removeprefix("tensor(").removesuffix(")").upper()
            element = TensorProto.DataType.Value(kind)
            info = helper.make_tensor_value_info(value.name, element, value.shape)
            if value.name in declared:
                declared[value.name].CopyFrom(info)
            else:
                model.graph.value_info.append(info)
    infer_shapes(model)


def _failing(nodes: Sequence[NodeProto], cutter: Cutter, attempt: Attempt) -> list[NodeProto]:
    """The nodes that cannot be imported, by halving what fails."""
    try:
        with third_party():
            attempt(cutter.part(nodes))
        return []
    except (AutotuneError, ThirdPartyError):
        if len(nodes) < 2:
            return list(nodes)
    middle = len(nodes) // 2
    failing = _failing(nodes[:middle], cutter, attempt) + _failing(nodes[middle:], cutter, attempt)
    return failing or [nodes[middle]]  # only together do the halves fail: this node keeps them apart


def _is_product(node: NodeProto) -> bool:
    return any(node.op_type.endswith(kind) for kind in PRODUCTS) or any(
        _is_product(inner) for graph in subgraphs(node) for inner in graph.node
    )


def _groups(nodes: Sequence[NodeProto], failing: Collection[int]) -> dict[int, list[NodeProto]]:
    """Level → its nodes."""
    groups: dict[int, list[NodeProto]] = {}
    for node, level in zip(nodes, _levels(nodes, failing), strict=True):
        groups.setdefault(level, []).append(node)
    return groups


def _levels(nodes: Iterable[NodeProto], failing: Collection[int]) -> list[int]:
    """Even levels can be imported, odd ones not."""
    of_value: dict[str, int] = {}
    levels = []
    for node in nodes:
        odd = int(id(node) in failing)
        level = max((of_value[name] for name in outer_reads(node) if name in of_value), default=odd)
        level += (level - odd) % 2
        levels.append(level)
        of_value.update(dict.fromkeys(node.output, level))
    return levels


class Cutter:
    """Makes models of some of a model's nodes."""

    def __init__(self, model: ModelProto) -> None:
        self._model = model
        self._scope = Scope(model)
        self._interface = {value.name: value for value in (*true_inputs(model.graph), *model.graph.output)}
        self._declared = {value.name: value for value in model.graph.value_info}
        self._outputs = [value.name for value in model.graph.output]
        self._makers = {name: node for node in model.graph.node for name in node.output if name}
        self._readers = readers_of(model.graph.node, bodies=True)

    def is_static(self, node: NodeProto) -> bool:
        """Return whether the shapes of all that ``node`` reads and makes are known."""
        outside = [name for name in outer_reads(node) if name in self._makers or name in self._interface]
        return all(name in self._scope.shapes for name in (*outside, *filter(None, node.output)))

    def part(self, nodes: Sequence[NodeProto]) -> ModelProto:
        """The nodes as a model: what others make are its inputs, what others read its outputs.

        What is of unknown shape has the type that is known of it.
        """
        mine = {id(node) for node in nodes}
        produced = [name for node in nodes for name in node.output if name]
        read = dict.fromkeys(name for node in nodes for name in sorted(outer_reads(node)))
        weights = [self._scope.tensors[name] for name in read if name in self._scope.tensors]
        known = {*self._interface, *self._makers} - set(produced)
        inputs = [name for name in read if name in known and name not in self._scope.tensors]
        outputs = [
            name
            for name in produced
            if name in self._outputs or any(id(reader) not in mine for reader in self._readers.get(name, ()))
        ]
        graph = helper.make_graph(
            nodes, "part", [self._value(name) for name in inputs], [self._value(name) for name in outputs], weights
        )
        part = helper.make_model(graph, opset_imports=self._model.opset_import, ir_version=self._model.ir_version)
        part.graph.value_info.extend(value for value in self._model.graph.value_info if value.name in produced)
        return part

    def _value(self, name: str) -> ValueInfoProto:
        if name in self._scope.types and name in self._scope.shapes:
            return self._scope.described(name)
        declared: ValueInfoProto = self._interface.get(name) or self._declared.get(name, ValueInfoProto(name=name))
        return declared


def declare_states(model: ModelProto) -> None:
    """Note the shapes of what loops carry from turn to turn and of all that follows from them, in place.

    ONNX infers nothing about them. A loop whose number of turns depends on the data is left to ONNX Runtime; what reads
    its states can still be tuned where every turn makes them of the shape that it reads.

    Args:
        model: flat, with shapes as far as they can be inferred.
    """
    known: dict[str, ValueInfoProto] = {}
    for node in [node for node in model.graph.node if node.op_type == "Loop"]:
        scope = Scope(model)
        states = node.output[: len(node.input) - 2]
        if all(name in scope.shapes for name in filter(None, states)):
            continue
        shapes = _kept_shapes(node, model, scope)
        kept_states = {
            name: helper.make_tensor_value_info(name, scope.types[before], shape)
            for name, before, shape in zip(states, node.input[2:], shapes, strict=True)
            if name and before in scope.types and shape is not None
        }
        if kept_states:
            known.update(kept_states)
            _follow(model, known)


def _kept_shapes(node: NodeProto, model: ModelProto, scope: Scope) -> list[tuple[int, ...] | None]:
    """Shape of every state that is the same at every turn; None of another."""
    body: GraphProto = attributes_of(node)["body"]
    shapes = [scope.shapes.get(name) for name in node.input[2:]]
    while any(shape is not None for shape in shapes):
        try:
            after_turn = _made_shapes(node, body, model, scope, shapes)
        except ModelError:
            return [None] * len(shapes)
        kept = [shape if shape == after else None for shape, after in zip(shapes, after_turn, strict=True)]
        if kept == shapes:
            break
        shapes = kept  # a state that changes may change another's shape at the next turn
    return shapes


def _made_shapes(
    node: NodeProto, body: GraphProto, model: ModelProto, scope: Scope, shapes: Sequence[tuple[int, ...] | None]
) -> list[tuple[int, ...] | None]:
    """Shapes of the states after a turn that begins with ``shapes``."""
    turn = ModelProto(ir_version=max(model.ir_version, 4))
    turn.opset_import.extend(model.opset_import)
    turn.functions.extend(model.functions)
    turn.graph.CopyFrom(body)
    del turn.graph.input[:], turn.graph.value_info[:]
    kinds = (TensorProto.INT64, TensorProto.BOOL, *(scope.types.get(name, 0) for name in node.input[2:]))
    for argument, kind, shape in zip(body.input, kinds, ((), (), *shapes), strict=True):
        turn.graph.input.append(
            helper.make_tensor_value_info(argument.name, kind or argument.type.tensor_type.elem_type, shape)
        )
    inside = {name for inner in body.node for name in inner.output}
    inside.update(inner.name for inner in (*body.initializer, *body.input))
    for name in sorted(set.union(set(), *(outer_reads(inner) for inner in body.node)) - inside):
        if name in scope.tensors:
            turn.graph.initializer.append(scope.tensors[name])
        elif name in scope.types:
            turn.graph.input.append(helper.make_tensor_value_info(name, scope.types[name], scope.shapes.get(name)))
    for value in turn.graph.output:
        value.type.tensor_type.ClearField("shape")
    infer_shapes(turn, "the body of a loop")
    after = Scope(turn)
    return [after.shapes.get(value.name) for value in turn.graph.output[1 : 1 + len(shapes)]]


def _follow(model: ModelProto, known: dict[str, ValueInfoProto]) -> None:
    """Infer the shapes of ``model`` from those that are ``known`` of what its loops carry."""
    rest = deepcopy(model)
    keep_only(rest.graph.node, lambda node: known.keys().isdisjoint(node.output))
    rest.graph.input.extend(known.values())
    infer_shapes(rest, strict=False)
    outputs = {value.name: known.get(value.name, value) for value in rest.graph.output}
    del model.graph.value_info[:]
    model.graph.value_info.extend(rest.graph.value_info)
    model.graph.value_info.extend(value for name, value in known.items() if name not in outputs)
    for value in model.graph.output:
        value.CopyFrom(outputs[value.name])


MOST_TRIALS = 64
"""Different operators that are imported alone. A bound on the seconds before an error is shown; heuristic, not
measured."""


def attributed(model: ModelProto, error: Exception, attempt: Callable[[ModelProto], object]) -> ModelError:
    """The error to raise for ``error``: it names the first operator that fails alone, else all there are.

    Args:
        model: simplified; what was being imported.
        error: what the import raised.
        attempt: imports a model.
    """
    names = list(dict.fromkeys(node.op_type for node in model.graph.node))
    for node, alone in kinds_alone(model) if len(names) > 1 else ():
        try:
            with third_party():
                attempt(alone)
        except (AutotuneError, ThirdPartyError) as other:
            return UnsupportedError(
                f"operator {node.op_type} (node {node.name!r}) cannot be built: {first_line(other, 200)}; "
                "export the model without it"
            )
    return UnsupportedError(
        f"the model cannot be imported: {first_line(error, 200)}; its operators are {', '.join(names)}"
    )


def kinds_alone(model: ModelProto) -> Iterator[tuple[NodeProto, ModelProto]]:
    """The first node of each operator of ``model``, and a model of that node alone; at most ``MOST_TRIALS``."""
    kinds = {node.op_type: node for node in reversed(model.graph.node)}
    cutter = Cutter(model)
    for name in list(dict.fromkeys(node.op_type for node in model.graph.node))[:MOST_TRIALS]:
        if cutter.is_static(kinds[name]):
            yield kinds[name], cutter.part([kinds[name]])
