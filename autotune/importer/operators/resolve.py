"""A model without what Relax cannot import: functions expanded, constants folded, loops laid out, the rest rewritten."""

from __future__ import annotations

from collections.abc import Collection

import onnx
import onnx.inliner
from onnx import ModelProto, helper

from autotune.importer.graph_walk import name_nodes, walk_nodes
from autotune.importer.load import STANDARD_DOMAINS
from autotune.importer.operators import catalog
from autotune.importer.operators.folding import drop_dead, fold
from autotune.importer.operators.registry import rewrite
from autotune.importer.rewrites import constants_to_initialisers, drop_unused_initialisers, remove_passthrough
from autotune.importer.shapes import infer_shapes
from autotune.importer.tensors import one_line
from schedules.errors import ModelError

ROUNDS = 24
"""More rounds than nested functions, loops and rewrites need."""


def resolve(model: ModelProto, expand: Collection[str] = ()) -> ModelProto:
    """An equivalent model of operators that can be imported.

    Args:
        model: a skeleton (``shapes.skeleton``); changed and given back.
        expand: more operators to replace by their function bodies.

    Raises:
        ModelError: naming the operator that stands in the way.
    """
    name = model.graph.name or "model"
    wanted = {*catalog.EXPANDED, *expand}
    for _ in range(ROUNDS):
        constants_to_initialisers(model.graph)
        # The model itself was checked; bodies of ONNX's own functions do not always pass.
        infer_shapes(model, name, strict=False)
        changed = fold(model)
        drop_dead(model)
        changed |= rewrite(model)
        remove_passthrough(model.graph)
        drop_unused_initialisers(model.graph)
        kinds = {(n.domain, n.op_type) for n in walk_nodes(model.graph.node)}
        found = {(d, k) for d, k in kinds if (d in STANDARD_DOMAINS and k in wanted) or d not in STANDARD_DOMAINS}
        if found:
            model, grown = _expanded(model, found)
            changed |= grown
        name_nodes(model.graph.node)
        if not changed:
            return model
    raise ModelError(f"{name}: constants still unfold after {ROUNDS} rounds; flatten its nested functions")


def _expanded(model: ModelProto, kinds: Collection[tuple[str, str]]) -> tuple[ModelProto, bool]:
    """The functions that ONNX defines operators with, in their place; whether there were any."""
    before = len(model.graph.node), {node.op_type for node in model.graph.node}
    # The inliner looks for types among inputs and values only, and for those of inputs that are left out, too.
    typed = ModelProto()
    typed.CopyFrom(model)
    typed.graph.value_info.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        for tensor in model.graph.initializer
    )
    typed.graph.value_info.append(helper.make_empty_tensor_value_info(""))
    try:
        expanded = onnx.inliner.inline_selected_functions(typed, sorted(kinds), inline_schema_functions=True)
    except (RuntimeError, ValueError) as error:
        named = ", ".join(sorted(kind for _, kind in kinds))
        raise ModelError(f"the function of {named} cannot be expanded: {one_line(error)}; export it without") from error
    after = len(expanded.graph.node), {node.op_type for node in expanded.graph.node}
    return expanded, before != after
