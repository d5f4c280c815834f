"""An If whose condition is computed and of which one branch cannot run at the shapes that the inputs have.

A speech model for two sampling rates takes windows of another length at each: at the length of one, an LSTM of the
other's branch meets a tensor of the wrong rank. Both branches of an If are computed otherwise, so such a model could
not be imported, and ONNX Runtime's optimiser refuses it too. It can run on the other branch only, which therefore takes
the node's place, whatever the condition says.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import GraphProto, ModelProto, NodeProto
from onnx.shape_inference import InferenceError

from autotune.importer.conversion.flat_model import OPSET_NOTE, flatten
from autotune.importer.onnx_model.graph_edits import replace_nodes
from autotune.importer.onnx_model.graph_walk import name_nodes
from autotune.importer.onnx_model.input_shapes import ASSUMED_NOTE, drop_notes
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.segments import Cutter
from autotune.importer.onnx_model.shapes import infer_shapes, skeleton, true_inputs
from autotune.importer.operators.control import inlined
from autotune.importer.rewriting.registry import replacement
from schedules.vocabulary.errors import ModelError, first_line

SIDES = {"then_branch": "else_branch", "else_branch": "then_branch"}

MISFIT = "shapes do not fit"
"""Words of ``infer_shapes`` about nodes that cannot run; a branch is not ruled out for any other reason."""

COMPLAINT, PLAIN = "[ShapeInferenceError] Inference error(s): ", "): [ShapeInferenceError] "
"""How ONNX begins the list of nodes that cannot run, and what it says of one for its shapes."""

SHAPES_ONLY = frozenset({"Shape", "Size"})
"""Operators that read no values."""

NOTE = "tune.branch"
"""Key of the model's metadata under which a branch that is always taken is noted, for people."""


def drop_dead_branches(model: ModelProto) -> None:
    """Put the branch that can run in the place of every such If of the main graph, in place, and note it.

    Args:
        model: its shapes are inferred.

    Raises:
        ModelError: as ``infer_shapes``.
    """
    drop_notes(model, NOTE)
    ifs = (node for node in model.graph.node if node.op_type == "If" and not node.domain)
    choices = [node for node in ifs if _is_computed(model.graph, node.input[0])]
    if not choices or model.functions:
        return
    # Nothing of a skeleton is large: parts of it are cut out without the weights that they read.
    cutter, kept = Cutter(skeleton(model)), list(model.graph.node)
    changed = False
    for node in choices:
        misfits = {side: _misfit(cutter.part([node]), side) for side in SIDES}
        dead = [side for side, why in misfits.items() if why]
        if len(dead) == 1:
            taken = SIDES[dead[0]]
            text = f"operator If (node {node.name!r}): its {dead[0]} cannot run at these input shapes"
            text = f"{text}, so its {taken} is always taken: {misfits[dead[0]]}"
            model.metadata_props.add(key=NOTE, value=f"{text}; give other sizes with --input to have both")
            place = next(number for number, other in enumerate(kept) if other is node)
            kept[place : place + 1] = _taken(model, node, taken)
            changed = True
    if changed:
        replace_nodes(model.graph, kept)
        name_nodes(model.graph.node)
        infer_shapes(model)


def notes_of(model: ModelProto) -> Iterator[str]:
    """Return the notes of ``bind_inputs``, ``agree_on_opsets`` and ``drop_dead_branches``."""
    return (str(entry.value) for entry in model.metadata_props if entry.key in (ASSUMED_NOTE, OPSET_NOTE, NOTE))


def _is_computed(graph: GraphProto, condition: str) -> bool:
    """Return whether ``condition`` depends on the values of an input, not only on shapes."""
    makers = {name: node for node in graph.node for name in node.output if name}
    inputs = {value.name for value in true_inputs(graph)}
    left, seen = [condition], {condition}
    while left:
        name = left.pop()
        if name in inputs:
            return True
        maker = makers.get(name)
        if maker is not None and maker.op_type not in SHAPES_ONLY:
            left += [source for source in maker.input if source not in seen]
            seen.update(maker.input)
    return False


def _misfit(part: ModelProto, side: str) -> str:
    """Why the branch ``side`` of the one node of ``part`` cannot run; empty where it may."""
    (node,) = part.graph.node
    body, nodes = next(attribute.g for attribute in node.attribute if attribute.name == side), _taken(part, node, side)
    for copy, own in zip(nodes, body.node, strict=False):  # a message names a node as the model does
        copy.name = own.name
    replace_nodes(part.graph, nodes)
    del part.graph.value_info[:]
    for value in part.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    try:
        flat = flatten(part)
    except ModelError as error:
        return first_line(error) if MISFIT in str(error) else ""
    try:
        onnx.shape_inference.infer_shapes(skeleton(flat), check_type=True, strict_mode=True, data_prop=False)
    except InferenceError as error:  # ``infer_shapes`` passes over what has an If behind it that cannot be inferred
        complaint = str(error).removeprefix(COMPLAINT).split("\n")[0]
        return first_line(complaint) if str(error).startswith(COMPLAINT) and PLAIN in complaint else ""
    return ""


def _taken(model: ModelProto, node: NodeProto, side: str) -> list[NodeProto]:
    """The nodes of a branch of ``node``, which make what that makes; its initialisers become the graph's."""
    return replacement(lambda own, e: inlined(e, own.attr(side), [], side), node, Scope(model)) or []
