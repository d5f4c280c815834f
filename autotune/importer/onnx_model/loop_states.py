"""Shapes of what a ``Loop`` carries from turn to turn, which ONNX infers nothing about.

A loop whose number of turns depends on the data is left to ONNX Runtime. What reads its states can still be tuned where
every turn makes them of the shape that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from autotune.importer.onnx_model.graph_edits import keep_only
from autotune.importer.onnx_model.graph_walk import attributes_of, outer_reads
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import infer_shapes
from schedules.vocabulary.errors import ModelError


def declare_states(model: ModelProto) -> None:
    """Note the shapes of what loops carry and of all that follows from them, in place.

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
    infer_shapes(rest, model.graph.name or "model", strict=False)
    outputs = {value.name: known.get(value.name, value) for value in rest.graph.output}
    del model.graph.value_info[:]
    model.graph.value_info.extend(rest.graph.value_info)
    model.graph.value_info.extend(value for name, value in known.items() if name not in outputs)
    for value in model.graph.output:
        value.CopyFrom(outputs[value.name])
