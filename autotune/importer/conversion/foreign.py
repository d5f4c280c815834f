"""ONNX Runtime's own operators become standard ones, before anything else is done with a model.

ONNX infers nothing behind an operator that it does not know, and rewrites need shapes. So nodes are taken in order, and
the types of what takes the place of one are inferred before the next is looked at.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx
from onnx import ModelProto, NodeProto

from autotune.importer.conversion import operator_catalog  # noqa: F401  # fills the registry
from autotune.importer.onnx_model.graph_edits import keep_only
from autotune.importer.onnx_model.graph_walk import all_nodes, walk_nodes
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import (
    MICROSOFT,
    OWN_DOMAIN,
    STANDARD_DOMAINS,
    infer_shapes,
    know_domain,
)
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.folding import fold
from autotune.importer.rewriting.registry import STRAYS, replace_all, rewrite_of
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
        know_domain(holder, MICROSOFT)


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
        infer_shapes(model, strict=False)
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

    def written(node: Node, e: Emit) -> list[str]:
        function = rewrite_of(node.proto)
        try:
            results = None if function is None else function(node, e)
        except (IndexError, ValueError) as error:  # nothing has checked the ranks and attributes of such a node
            raise node.refused("its inputs or attributes are not what the operator takes") from error
        if results is None:
            raise node.refused("this form of it is not known")
        return results

    changed, refusal = replace_all(
        model, scope, lambda proto: written if is_expandable(proto, scope.opset) else None, deduce=True
    )
    if any(node.domain == OWN_DOMAIN for node in model.graph.node):
        know_domain(model)
    return changed, refusal


def _drop_unused_domains(model: ModelProto) -> None:
    """Forget domains that no node is of any more: ONNX's version converter stops at those it does not know."""
    used = {node.domain for node in all_nodes(model)} | {function.domain for function in model.functions}
    keep_only(model.opset_import, lambda opset: opset.domain in (*STANDARD_DOMAINS, *used))
