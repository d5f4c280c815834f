"""A model that Relax can import: functions expanded, constants folded, loops unrolled, operators rewritten."""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy

import onnx
import onnx.inliner
from onnx import ModelProto, helper

from autotune.frame.frame import HostStep
from autotune.importer.conversion import operator_catalog as catalog
from autotune.importer.conversion.largest_sizes import largest_sizes
from autotune.importer.conversion.packed_outputs import pack_outputs
from autotune.importer.onnx_model.graph_edits import drop_unused, tidy
from autotune.importer.onnx_model.graph_walk import name_nodes, walk_nodes
from autotune.importer.onnx_model.shapes import OWN_DOMAIN, STANDARD_DOMAINS, infer_shapes, know_own_domain
from autotune.importer.rewriting.folding import fold
from autotune.importer.rewriting.registry import rewrite, rewrite_of
from schedules.vocabulary.errors import ModelError, first_line

SPARE_ROUNDS = 64
"""Rounds beyond one per node after which a model is refused: a bound on rewrites that never end, which none does. A
round folds all that is known and expands one level of functions, loops and branches."""


def resolve(
    model: ModelProto, inputs: Collection[str], expand: Collection[str] = ()
) -> tuple[ModelProto, list[HostStep]]:
    """An equivalent model of operators that can be imported.

    Args:
        model: a skeleton (``shapes.skeleton``); changed and given back.
        inputs: names of the true inputs; the skeleton's others are large weights.
        expand: more operators to replace by their function bodies.

    Returns:
        The model, and the steps that make of its outputs what they were: sequences, and sizes that depend on data.

    Raises:
        ModelError: naming the operator that stands in the way.
    """
    name = model.graph.name or "model"
    steps: list[HostStep] = []
    for value in model.graph.output:
        if value.type.WhichOneof("value") != "tensor_type":  # may become another kind, of which nothing is left
            value.type.Clear()
    refusal: ModelError | None = None
    settled = False  # whether the last round changed nothing
    wanted = {*catalog.EXPANDED, *expand}
    know_own_domain(model)
    for _ in range(SPARE_ROUNDS + sum(1 for _ in walk_nodes(model.graph.node))):
        changed = False
        if not settled:
            tidy(model.graph)
            # The model itself was checked; bodies of ONNX's own functions do not always pass strict inference.
            infer_shapes(model, name, strict=False)
            changed = fold(model)
            drop_unused(model.graph)
        rewritten, refusal = rewrite(model, inputs, settled)
        changed |= rewritten
        tidy(model.graph)
        kinds = {
            (node.domain, node.op_type)
            for node in walk_nodes(model.graph.node)
            if node.domain in STANDARD_DOMAINS or rewrite_of(node) is None
        }
        expandable = {(d, k) for d, k in kinds if k in wanted or d not in (*STANDARD_DOMAINS, OWN_DOMAIN)}
        if expandable:
            model, grown = _expanded(model, expandable)
            changed |= grown
        name_nodes(model.graph.node)
        if not changed and settled:
            cuts = largest_sizes(model, inputs)
            changed = cuts is not None
            steps += cuts or []
            if not changed and refusal is None:
                return model, [*steps, *pack_outputs(model)]
            if not changed and refusal is not None:
                raise refusal
        settled = not changed
    raise refusal or ModelError(f"{name}: the model does not settle; flatten its nested functions")


def _spell_defaults(model: ModelProto, kinds: Collection[tuple[str, str]]) -> None:
    """Write out default attributes of nodes that are about to be expanded: the inliner forgets them."""
    versions = {opset.domain: opset.version for opset in model.opset_import}
    for node in walk_nodes(model.graph.node):
        if (node.domain, node.op_type) not in kinds:
            continue
        domain = "" if node.domain in STANDARD_DOMAINS else node.domain
        schema = onnx.defs.get_schema(node.op_type, versions.get(node.domain, versions.get("", 1)), domain)
        present = {attribute.name for attribute in node.attribute}
        for name, attribute in schema.attributes.items():
            if name not in present and attribute.default_value.type:
                node.attribute.append(attribute.default_value)


def _expanded(model: ModelProto, kinds: Collection[tuple[str, str]]) -> tuple[ModelProto, bool]:
    """The functions that ONNX defines operators with, in their place; whether there were any."""
    before = len(model.graph.node), {node.op_type for node in model.graph.node}
    _spell_defaults(model, kinds)
    # The inliner looks for types among inputs and values only, and for those of inputs that are left out, too.
    typed = deepcopy(model)
    typed.graph.value_info.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        for tensor in model.graph.initializer
    )
    typed.graph.value_info.append(helper.make_empty_tensor_value_info(""))
    try:
        expanded = onnx.inliner.inline_selected_functions(typed, sorted(kinds), inline_schema_functions=True)
    except (RuntimeError, ValueError) as error:
        named = ", ".join(sorted(kind for _, kind in kinds))
        message = f"the function of {named} cannot be expanded: {first_line(error)}; export it without"
        raise ModelError(message) from error
    after = len(expanded.graph.node), {node.op_type for node in expanded.graph.node}
    return expanded, before != after
