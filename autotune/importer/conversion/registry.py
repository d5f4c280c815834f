"""Which operator is imported how. One place: ``rewrites`` registers a function that replaces a node by simpler ones.

What has no entry here goes to Relax's importer, or to one of our own converters (``frontend``), as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from onnx import ModelProto, helper

from autotune.importer.conversion.scope import Emit, Node, Scope
from autotune.importer.onnx_model.rewrites import replace_nodes

Rewrite = Callable[[Node, Emit], list[str] | None]
"""Names of the values that replace the node's outputs; None leaves the node as it is."""

REWRITES: dict[str, Rewrite] = {}
"""Operator → its rewrite."""


def rewrites(*kinds: str) -> Callable[[Rewrite], Rewrite]:
    """Register a rewrite of the standard operators ``kinds``."""

    def register(function: Rewrite) -> Rewrite:
        for kind in kinds:
            assert kind not in REWRITES, kind
            REWRITES[kind] = function
        return function

    return register


def rewrite(model: ModelProto, inputs: Collection[str] = ()) -> bool:
    """Apply the rewrites to the main graph, in place; whether any applied.

    Args:
        inputs: as ``Scope`` has them.

    Raises:
        ModelError: naming the operator, if one meets a form that is not supported.
    """
    scope = Scope(model, inputs)
    kept, changed = [], False
    for proto in model.graph.node:
        function = REWRITES.get(proto.op_type) if proto.domain in ("", "ai.onnx") else None
        node = Node(proto, scope)
        emit = Emit(node)
        made = None if function is None else function(node, emit)
        if made is None:
            kept.append(proto)
            continue
        changed = True
        kept.extend(emit.nodes)
        for name, output in zip(made, proto.output, strict=False):
            if output:
                kept.append(helper.make_node("Identity", [name], [output], f"{output}/is"))
    if changed:
        replace_nodes(model.graph, kept)
    return changed
