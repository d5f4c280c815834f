"""ONNX Runtime's own operators become standard ones, before anything else is done with a model.

ONNX infers nothing behind an operator that it does not know, and rewrites need shapes. So nodes are taken in order, and
the types of what takes the place of one are inferred before the next is looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import onnx
from onnx import ModelProto, NodeProto

from autotune.importer.conversion import operator_catalog  # noqa: F401  # fills the registry
from autotune.importer.onnx_model.graph_edits import replace_nodes
from autotune.importer.onnx_model.graph_walk import walk_nodes
from autotune.importer.onnx_model.mend import name_own_domain
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import (
    MICROSOFT,
    OWN_DOMAIN,
    STANDARD_DOMAINS,
    infer_shapes,
    know_own_domain,
)
from autotune.importer.rewriting.emit import Node
from autotune.importer.rewriting.folding import fold
from autotune.importer.rewriting.registry import STRAYS, replacement, rewrite_of
from schedules.vocabulary.errors import ModelError, UnsupportedError


def is_expandable(node: NodeProto, opset: int) -> bool:
    """Return whether ``node`` is of an operator that ONNX lacks at ``opset`` and that can become standard ones."""
    if node.domain in STANDARD_DOMAINS:
        known = onnx.defs.has(node.op_type, opset) and not onnx.defs.get_schema(node.op_type, opset, "").deprecated
        return node.op_type in STRAYS and not known
    return rewrite_of(node) is not None


def set_strays_apart(holder: ModelProto | onnx.FunctionProto, opset: int) -> None:
    """Put the operators that ONNX Runtime writes into ONNX's domain into its own, in place; ONNX's checker skips it.

    Args:
        holder: a function, or a model, whose functions are left alone.
        opset: by which its operators are read.
    """
    nodes = walk_nodes(holder.node if isinstance(holder, onnx.FunctionProto) else holder.graph.node)
    strays = [node for node in nodes if node.domain in STANDARD_DOMAINS and is_expandable(node, opset)]
    for node in strays:
        node.domain = MICROSOFT
    if strays:
        name_own_domain(holder)


def expand_foreign(model: ModelProto, inputs: Collection[str] = ()) -> bool:
    """Replace what is expandable in the main graph by standard operators, in place; whether there was any.

    Args:
        model: may be a skeleton (``shapes.skeleton``).
        inputs: as ``Scope`` has them.

    Raises:
        ModelError: naming the operator and the way out, if one has a form that is not supported.
    """
    opset = Scope(model, inputs).opset
    changed = False
    while any(is_expandable(node, opset) for node in model.graph.node):
        infer_shapes(model, model.graph.name or "model", strict=False)
        grown, refusal = _expanded_once(model, inputs)
        changed |= grown
        # Behind an operator that ONNX does not know, sizes that were computed from shapes become known only now.
        if grown or fold(model):
            continue
        raise UnsupportedError(f"{refusal}; export the model with standard operators only") from refusal
    if changed:
        _drop_unused_domains(model)
    return changed


def _expanded_once(model: ModelProto, inputs: Collection[str]) -> tuple[bool, ModelError | None]:
    """Return whether any node was replaced, and why the first that was not could not be."""
    scope = Scope(model, inputs)
    kept: list[NodeProto] = []
    changed = False
    refusal: ModelError | None = None
    for proto in model.graph.node:
        nodes = None
        if is_expandable(proto, scope.opset):
            try:
                function = rewrite_of(proto)
                nodes = None if function is None else replacement(function, proto, scope)
                if nodes is None:
                    refusal = refusal or Node(proto, scope).refused("this form of it is not known")
            except ModelError as error:
                refusal = refusal or error
            except (IndexError, ValueError):  # nothing has checked the ranks and attributes of such a node
                why = "its inputs or attributes are not what the operator takes"
                refusal = refusal or Node(proto, scope).refused(why)
        changed |= nodes is not None
        nodes = [proto] if nodes is None else nodes
        for node in nodes:
            scope.deduce(node)
        kept.extend(nodes)
    if changed:
        replace_nodes(model.graph, kept)
        if any(node.domain == OWN_DOMAIN for node in kept):
            know_own_domain(model)
    return changed, refusal


def _drop_unused_domains(model: ModelProto) -> None:
    """Forget domains that no node is of any more: ONNX's version converter stops at those it does not know."""
    used = {"", *_domains(model.graph.node)}
    for function in model.functions:
        used.update(_domains(function.node), [function.domain])
    kept = [opset for opset in model.opset_import if opset.domain in (*STANDARD_DOMAINS, *used)]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _domains(nodes: Iterable[NodeProto]) -> set[str]:
    return {str(node.domain) for node in walk_nodes(nodes)}
