"""The table of all rewrites, fusions and converters, by operator.

Standard operators without an entry go to Relax's own importer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, TypeVar

from onnx import ModelProto, NodeProto, helper
from tvm import relax

from autotune.importer.onnx_model.graph_edits import replace_nodes
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import OWN_DOMAIN, STANDARD_DOMAINS
from autotune.importer.rewriting.emit import Emit, Node
from schedules.vocabulary.errors import ModelError

Rewrite = Callable[[Node, Emit], list[str] | None]
"""Names of the values that replace the node's outputs; None leaves the node as it is."""

Inputs = list[relax.Expr | None]
Converter = Callable[[relax.BlockBuilder, Inputs, dict[str, Any], int], relax.Expr]
"""(builder, inputs with None for those left out, attributes, opset) → result; a Tuple of several."""

INJECTIVE_PATTERN = 2
"""TVM's ``kInjective``: a kernel that is not fused behind an anchor."""

UNFUSED_PATTERN = 4
"""TVM's ``kOutEWiseFusable``: the readers fuse with it; its inputs, each read by many elements, do not."""

OPAQUE_PATTERN = 8
"""TVM's ``kOpaque``: a kernel that nothing is fused into."""

BY_HAND = "by hand"
"""Key in a converter's attributes (``tvm_custom``) that says whether the target has kernels scheduled by hand."""

STRAYS = frozenset(
    {
        *("GroupNormalization", "LayerNormalization", "SimplifiedLayerNormalization"),
        *("Affine", "Crop", "DynamicSlice", "ImageScaler", "MeanVarianceNormalization", "ParametricSoftplus"),
        *("Scale", "ScaledTanh", "ThresholdedRelu"),
    }
)
"""Operators in ONNX's domain that ONNX's checker refuses: those that ONNX Runtime writes there itself, opset 18's
``GroupNormalization``, and experiments before opset 9 or 10. ONNX withdrew these, and ONNX Runtime runs them."""


class Role(Enum):
    """The use of an entry; the value names the pass (``import_passes.py``) that looks it up.

    ``FOREIGN`` and ``REWRITE`` replace a node by simpler ones, ``OPEN`` one that reads values of an open size,
    ``FUSE`` a node and those that feed it by fewer; ``CONVERT`` makes Relax of a node, before Relax's own importer.
    """

    FOREIGN = "foreign"
    REWRITE = "sizes"
    OPEN = "sizes, open"
    FUSE = "fuse"
    CONVERT = "relax"


ENTRIES: dict[tuple[Role, str, str], tuple[Callable[..., Any], ...]] = {}
"""Role, domain and kind of an operator → what is done with it: a ``Rewrite``, a ``Converter``, or of ``Role.OPEN`` an
``open_sizes.OpenOperator``. There are several only of ``Role.FUSE``, in the order of their tries. The domain is empty
for ONNX's own operators and, of those that are converted, the importer's."""

F = TypeVar("F", bound=Callable[..., Any])


def rewrites(*kinds: str, domain: str = "") -> Callable[[Rewrite], Rewrite]:
    """Register a rewrite of the operators ``kinds`` of ``domain``; those of other domains must end as standard ones."""
    return _registered(Role.REWRITE if domain in ("", OWN_DOMAIN) else Role.FOREIGN, kinds, domain)


def fuses(*kinds: str) -> Callable[[Rewrite], Rewrite]:
    """Register a fusion that ends in one of the operators ``kinds``; its node has a ``FusionScope``."""
    return _registered(Role.FUSE, kinds)


def converts(*kinds: str) -> Callable[[Converter], Converter]:
    """Register a converter of the operators ``kinds``."""
    return _registered(Role.CONVERT, kinds)


def handles(*kinds: str) -> Callable[[F], F]:
    """Register what is done with the operators ``kinds`` where they read values of an open size."""
    return _registered(Role.OPEN, kinds)


def _registered(role: Role, kinds: Collection[str], domain: str = "") -> Callable[[F], F]:
    def register(function: F) -> F:
        for kind in kinds:
            known = ENTRIES.get((role, domain, kind), ())
            if known and (role is not Role.FUSE or function in known):
                raise ValueError(f"operator {kind} of domain {domain!r} has an entry for {role.name} already")
            ENTRIES[role, domain, kind] = (*known, function)
        return function

    return register


def function_of(role: Role, kind: str, domain: str = "") -> Callable[..., Any] | None:
    """Return the function that is registered for an operator; None if there is none."""
    return next(iter(ENTRIES.get((role, domain, kind), ())), None)


def rewrite_of(node: NodeProto) -> Rewrite | None:
    """The rewrite of a node's operator."""
    domain = "" if node.domain in STANDARD_DOMAINS else node.domain
    return function_of(Role.REWRITE, node.op_type, domain) or function_of(Role.FOREIGN, node.op_type, domain)


def replacement(function: Rewrite, proto: NodeProto, scope: Scope) -> list[NodeProto] | None:
    """The nodes that ``function`` puts in the place of ``proto``, whose outputs keep their names; None leaves it.

    Raises:
        ModelError: naming the operator, if it has a form that is not supported.
    """
    node = Node(proto, scope)
    emit = Emit(node)
    results = function(node, emit)
    if results is None:
        return None
    pairs = [(name, output) for name, output in zip(results, proto.output, strict=False) if output]
    return [*emit.nodes, *(helper.make_node("Identity", [name], [output], f"{output}/is") for name, output in pairs)]


def split_to_slices(model: ModelProto) -> None:
    """Make every ``Split`` one ``Slice`` per output, in place: kernels have one output, and a slice is fused.

    Shapes must be inferred; a Split whose shapes are unknown stays.
    """
    scope, kept = Scope(model), list[NodeProto]()
    for proto in model.graph.node:
        parts = [scope.shapes.get(name) for name in proto.output if name]
        if proto.op_type != "Split" or None in parts:
            kept.append(proto)
            continue
        emit = Emit(node := Node(proto, scope))
        axis = int(node.attr("axis", 0))
        emit.split(node.input(0), [part[axis] for part in parts if part is not None], axis)
        for piece, name in zip(emit.nodes, filter(None, proto.output), strict=True):
            piece.output[0], piece.name = name, proto.name if piece is emit.nodes[0] else name
        kept += emit.nodes
    replace_nodes(model.graph, kept)


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
    return replace_all(model, scope, lambda proto: None if only and proto.op_type not in only else rewrite_of(proto))


def replace_all(
    model: ModelProto, scope: Scope, choose: Callable[[NodeProto], Rewrite | None], deduce: bool = False
) -> tuple[bool, ModelError | None]:
    """Replace the nodes of the main graph by what ``choose`` names for each, in place; the result as of ``rewrite``.

    Args:
        deduce: infer what each node makes before the next is looked at.
    """
    kept: list[NodeProto] = []
    changed = False
    refusal: ModelError | None = None
    for proto in model.graph.node:
        function = choose(proto)
        try:
            nodes = None if function is None else replacement(function, proto, scope)
        except ModelError as error:
            nodes, refusal = None, refusal or error
        changed |= nodes is not None
        kept.extend([proto] if nodes is None else nodes)
        for node in ([proto] if nodes is None else nodes) if deduce else ():
            scope.deduce(node)
    if changed:
        replace_nodes(model.graph, kept)
    return changed, refusal
