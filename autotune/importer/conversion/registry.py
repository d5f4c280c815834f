"""Which operator is imported how. Two tables: *rewrites* replace an ONNX node by simpler ONNX nodes, *converters* emit
Relax. Operators in neither go to Relax's own importer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from onnx import ModelProto, helper
from tvm import relax

from autotune.importer.conversion.emit import Emit, Node
from autotune.importer.onnx_model.rewrites import replace_nodes
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS
from schedules.errors import ModelError

Rewrite = Callable[[Node, Emit], list[str] | None]
"""Names of the values that replace the node's outputs; None leaves the node as it is."""

Inputs = list[relax.Expr | None]
Converter = Callable[[relax.BlockBuilder, Inputs, dict[str, Any], int], relax.Expr]
"""(builder, inputs with None for those left out, attributes, opset) → result; a Tuple of several."""

REWRITES: dict[str, Rewrite] = {}
"""Operator → its rewrite."""

CONVERTERS: dict[str, Converter] = {}
"""Operator → our converter, which comes before Relax's."""

F = TypeVar("F")


def rewrites(*kinds: str) -> Callable[[Rewrite], Rewrite]:
    """Register a rewrite of the standard operators ``kinds``."""
    return _entry(REWRITES, kinds)


def converts(*kinds: str) -> Callable[[Converter], Converter]:
    """Register a converter of the operators ``kinds``."""
    return _entry(CONVERTERS, kinds)


def _entry(table: dict[str, F], kinds: Collection[str]) -> Callable[[F], F]:
    def register(function: F) -> F:
        for kind in kinds:
            assert kind not in table, kind
            table[kind] = function
        return function

    return register


def rewrite(model: ModelProto, inputs: Collection[str] = (), settled: bool = True) -> tuple[bool, ModelError | None]:
    """Apply the rewrites to the main graph, in place.

    A node that a rewrite refuses stays as it is: what the rewrite misses, a shape or a constant, may be known after
    another round of folding.

    Args:
        inputs, settled: as ``Scope`` has them.

    Returns:
        Whether any applied, and the first refusal, which names the operator.
    """
    scope = Scope(model, inputs)
    scope.settled = settled
    kept, changed = [], False
    refusal: ModelError | None = None
    for proto in model.graph.node:
        function = REWRITES.get(proto.op_type) if proto.domain in STANDARD_DOMAINS else None
        node = Node(proto, scope)
        emit = Emit(node)
        try:
            made = None if function is None else function(node, emit)
        except ModelError as error:
            made, refusal = None, refusal or error
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
    return changed, refusal
