"""Which operator is imported how. Two tables: *rewrites* replace an ONNX node by simpler ONNX nodes, *converters* emit
Relax. Standard operators in neither go to Relax's own importer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from onnx import ModelProto, NodeProto, helper
from tvm import relax

from autotune.importer.onnx_model.graph_edits import replace_nodes
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS
from autotune.importer.rewriting.emit import Emit, Node
from schedules.errors import ModelError

Rewrite = Callable[[Node, Emit], list[str] | None]
"""Names of the values that replace the node's outputs; None leaves the node as it is."""

Inputs = list[relax.Expr | None]
Converter = Callable[[relax.BlockBuilder, Inputs, dict[str, Any], int], relax.Expr]
"""(builder, inputs with None for those left out, attributes, opset) → result; a Tuple of several."""

OPAQUE_PATTERN = 8
"""TVM's ``kOpaque``: a kernel that nothing is fused into."""

MICROSOFT = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""

REWRITES: dict[str, Rewrite] = {}
"""Operator → its rewrite. Those of other domains than ONNX's own are ``domain::operator``."""

FUSIONS: dict[str, list[Rewrite]] = {}
"""Standard operator → the fusions of such a node and those that feed it, in the order in which they are tried."""

STRAYS = frozenset({"GroupNormalization", "LayerNormalization", "SimplifiedLayerNormalization"})
"""Operators in ONNX's domain that ONNX's checker refuses: those that ONNX Runtime writes there itself, and opset 18's
``GroupNormalization``, which ONNX withdrew and ONNX Runtime runs."""

CONVERTERS: dict[str, Converter] = {}
"""Operator → our converter, which comes before Relax's."""

F = TypeVar("F")


def rewrites(*kinds: str, domain: str = "") -> Callable[[Rewrite], Rewrite]:
    """Register a rewrite of the operators ``kinds`` of ``domain``; those of other domains must end as standard ones."""
    return _entry(REWRITES, [f"{domain}::{kind}" if domain else kind for kind in kinds])


def rewrite_of(node: NodeProto) -> Rewrite | None:
    """The rewrite of a node's operator."""
    return REWRITES.get(node.op_type if node.domain in STANDARD_DOMAINS else f"{node.domain}::{node.op_type}")


def fuses(*kinds: str) -> Callable[[Rewrite], Rewrite]:
    """Register a fusion that ends in one of the operators ``kinds``; its node has a ``FusionScope``."""

    def register(function: Rewrite) -> Rewrite:
        for kind in kinds:
            FUSIONS.setdefault(kind, []).append(function)
        return function

    return register


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


def replacement(function: Rewrite, proto: NodeProto, scope: Scope) -> list[NodeProto] | None:
    """The nodes that ``function`` puts in the place of ``proto``, whose outputs keep their names; None leaves it.

    Raises:
        ModelError: naming the operator, if it has a form that is not supported.
    """
    node = Node(proto, scope)
    emit = Emit(node)
    made = function(node, emit)
    if made is None:
        return None
    pairs = [(name, output) for name, output in zip(made, proto.output, strict=False) if output]
    return [*emit.nodes, *(helper.make_node("Identity", [name], [output], f"{output}/is") for name, output in pairs)]


def rewrite(
    model: ModelProto, inputs: Collection[str] = (), settled: bool = True, only: Collection[str] = ()
) -> tuple[bool, ModelError | None]:
    """Apply the rewrites to the main graph, in place.

    A node that a rewrite refuses stays as it is: what the rewrite misses, a shape or a constant, may be known after
    another round of folding.

    Args:
        inputs, settled: as ``Scope`` has them.
        only: operators to rewrite; all where it is empty.

    Returns:
        Whether any applied, and the first refusal, which names the operator.
    """
    scope = Scope(model, inputs)
    scope.settled = settled
    kept: list[NodeProto] = []
    changed = False
    refusal: ModelError | None = None
    for proto in model.graph.node:
        function = None if only and proto.op_type not in only else rewrite_of(proto)
        try:
            made = None if function is None else replacement(function, proto, scope)
        except ModelError as error:
            made, refusal = None, refusal or error
        changed |= made is not None
        kept.extend([proto] if made is None else made)
    if changed:
        replace_nodes(model.graph, kept)
    return changed, refusal
