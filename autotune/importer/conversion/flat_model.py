"""A model without functions, and skeletons that get their weights back."""

from __future__ import annotations

import onnx
import onnx.inliner
from onnx import ModelProto

from autotune.importer.onnx_model.graph_edits import tidy
from autotune.importer.onnx_model.graph_walk import name_nodes, walk_nodes
from autotune.importer.onnx_model.shapes import infer_shapes, skeleton, true_inputs
from autotune.importer.rewriting.folding import fold
from autotune.importer.rewriting.registry import rewrite
from schedules.vocabulary.errors import ModelError, first_line


def flatten(model: ModelProto) -> ModelProto:
    """The model with its functions expanded and what is known computed; not all of it need be importable.

    Raises:
        ModelError: if a function cannot be expanded, or shapes do not fit.
    """
    small = inline_functions(skeleton(model))
    inputs = [value.name for value in true_inputs(model.graph)]
    tidy(small.graph)
    name = model.graph.name or "model"
    changed = True
    while changed:  # each round takes nodes away, or a level of branches
        infer_shapes(small, name, strict=False)
        changed = fold(small) | rewrite(small, inputs, settled=False, only=("If",))[0]
        tidy(small.graph)
    flat = with_weights(small, model)
    infer_shapes(flat, name)
    return flat


def inline_functions(model: ModelProto) -> ModelProto:
    """Expand the model's own functions.

    Raises:
        ModelError: if ONNX's inliner cannot.
    """
    try:
        if model.functions:
            _spell_function_defaults(model)
            model = onnx.inliner.inline_local_functions(model, convert_version=True)
    except (RuntimeError, ValueError) as error:
        name = model.graph.name or "model"
        raise ModelError(f"{name}: its functions cannot be expanded: {first_line(error)}; export it without") from error
    return model


def _spell_function_defaults(model: ModelProto) -> None:
    """Write out, in place, attributes that calls leave to the default of their function: the inliner forgets them."""
    defaults = {(function.domain, function.name): function.attribute_proto for function in model.functions}
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in walk_nodes(nodes):
            present = {attribute.name for attribute in node.attribute}
            known = defaults.get((node.domain, node.op_type), ())
            node.attribute.extend(attribute for attribute in known if attribute.name not in present)


def with_weights(small: ModelProto, model: ModelProto) -> ModelProto:
    """``small``, made from ``model``'s skeleton, with large initialisers again in place of the inputs they became."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    for index in reversed(range(len(small.graph.input))):
        name = small.graph.input[index].name
        if name in weights:
            small.graph.initializer.append(weights[name])
            del small.graph.input[index]
    name_nodes(small.graph.node)
    return small
