"""A model without functions, and skeletons that get their weights back."""

from __future__ import annotations

from copy import deepcopy

import onnx
import onnx.checker
import onnx.inliner
import onnx.shape_inference
from onnx import ModelProto, helper

from autotune.importer.conversion.foreign import set_strays_apart
from autotune.importer.onnx_model.graph_edits import keep_only, tidy
from autotune.importer.onnx_model.graph_walk import all_nodes, name_nodes, walk_nodes
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS, infer_shapes, skeleton, true_inputs
from autotune.importer.rewriting.folding import fold
from autotune.importer.rewriting.registry import rewrite
from schedules.vocabulary.errors import ModelError, first_line

OPSET_NOTE = "tune.opset"
"""Key of the model's metadata under which functions whose operators are read otherwise are noted, for people."""


def flatten(model: ModelProto) -> ModelProto:
    """The model with its functions expanded and what is known computed; not all of it need be importable.

    Raises:
        ModelError: if a function cannot be expanded, or shapes do not fit.
    """
    small = inline_functions(skeleton(model))
    inputs = [value.name for value in true_inputs(model.graph)]
    tidy(small.graph)
    changed = True
    while changed:  # each round takes nodes away, or a level of branches
        infer_shapes(small, strict=False)
        changed = fold(small) | rewrite(small, inputs, settled=False, only=("If",))[0]
        tidy(small.graph)
    flat = with_weights(small, model)
    infer_shapes(flat)
    return flat


def inline_functions(model: ModelProto) -> ModelProto:
    """Expand the model's own functions.

    Raises:
        ModelError: if ONNX's inliner cannot.
    """
    name = model.graph.name or "model"
    try:
        if model.functions:
            _spell_function_defaults(model)
            model = model if agree_on_opsets(model) else _convertible(model, name)
            model = onnx.inliner.inline_local_functions(model, convert_version=True)
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"{name}: its functions cannot be expanded: {first_line(error)}; export it without") from error
    return model


def without_functions(model: ModelProto) -> ModelProto:
    """``model`` with its functions expanded and every shape inferred that can be; itself if it has none.

    Raises:
        ModelError: if a function cannot be expanded, or shapes do not fit.
    """
    if not model.functions:
        return model
    flat = with_weights(inline_functions(skeleton(model)), model)
    infer_shapes(flat)
    return flat


def agree_on_opsets(model: ModelProto) -> bool:
    """Give functions, in place, the opset of ``model`` where their nodes are valid by it.

    ONNX's checker refuses functions that read an operator by another definition. ONNX Runtime reads all functions by
    the model's opset, which is noted for people (``OPSET_NOTE``) where definitions differ; what it refuses has the
    meaning of its own opset, to which ``inline_functions`` holds.

    Returns:
        Whether every function is of the model's opset now, and the model imports all domains that they use.
    """
    own = opset_of(model)
    domains = {*STANDARD_DOMAINS, *(opset.domain for opset in model.opset_import)}
    agrees = True
    for function in model.functions:
        theirs, nodes = opset_of(function), list(walk_nodes(function.node))
        agrees = agrees and all(node.domain in domains for node in nodes)
        if theirs == own:
            continue
        if not _is_valid(function, model):
            agrees = False
            continue
        standard = [node for node in nodes if node.domain in STANDARD_DOMAINS]
        if any(_definition(node, theirs) != _definition(node, own) for node in standard):
            text = (
                f"function {function.name!r} of opset {theirs} is read by the model's opset {own}, as in ONNX Runtime"
            )
            model.metadata_props.add(key=OPSET_NOTE, value=f"{text}; if it means something else, export both for one")
        for opset in function.opset_import:
            opset.version = own if opset.domain in STANDARD_DOMAINS else opset.version
    return agrees


def _is_valid(function: onnx.FunctionProto, model: ModelProto) -> bool:
    """Return whether the nodes of ``function``, those of bodies among them, are valid by the opsets of ``model``."""
    renewed = deepcopy(function)
    set_strays_apart(renewed, opset_of(model))
    imported = {opset.domain: opset.version for opset in (*renewed.opset_import, *model.opset_import)}
    imported |= dict.fromkeys(STANDARD_DOMAINS, opset_of(model))
    context = type(onnx.checker.DEFAULT_CONTEXT)()
    context.ir_version, context.opset_imports = onnx.checker.DEFAULT_CONTEXT.ir_version, imported
    del renewed.opset_import[:]
    renewed.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in imported.items())
    try:
        onnx.checker.check_function(renewed, context)
    except onnx.checker.ValidationError:
        return False
    return True


def opset_of(holder: ModelProto | onnx.FunctionProto) -> int:
    """The version of the standard operators."""
    return max((opset.version for opset in holder.opset_import if opset.domain in STANDARD_DOMAINS), default=1)


def _definition(node: onnx.NodeProto, opset: int) -> int:
    """The opset since which the operator of ``node`` is as in ``opset``; 0 where that lacks it."""
    try:
        return int(onnx.defs.get_schema(node.op_type, opset, "").since_version)
    except onnx.defs.SchemaError:
        return 0


def _convertible(model: ModelProto, name: str) -> ModelProto:
    """A copy of ``model`` with what the inliner needs to convert functions of other opsets: types, and their domains.

    Raises:
        ModelError: if a function is of a newer opset, to which nothing converts the model.
    """
    own = opset_of(model)
    newer = [function for function in model.functions if opset_of(function) > own]
    if newer:
        raise ModelError(
            f"{name}: function {newer[0].name!r} is of opset {opset_of(newer[0])} and the model of {own}; "
            "export both for one opset"
        )
    typed = onnx.shape_inference.infer_shapes(model)
    typed.graph.value_info.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        for tensor in typed.graph.initializer
    )
    imported = {opset.domain: opset for function in model.functions for opset in function.opset_import}
    missing = imported.keys() - {opset.domain for opset in typed.opset_import}
    typed.opset_import.extend(imported[domain] for domain in sorted(missing))
    return typed


def _spell_function_defaults(model: ModelProto) -> None:
    """Write out, in place, attributes that calls leave to the default of their function: the inliner forgets them."""
    defaults = {(function.domain, function.name): function.attribute_proto for function in model.functions}
    for node in all_nodes(model):
        present = {attribute.name for attribute in node.attribute}
        known = defaults.get((node.domain, node.op_type), ())
        node.attribute.extend(attribute for attribute in known if attribute.name not in present)


def with_weights(small: ModelProto, model: ModelProto) -> ModelProto:
    """``small``, made from ``model``'s skeleton, with large initialisers again in place of the inputs they became."""
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    names = [value.name for value in small.graph.input if value.name in weights]
    small.graph.initializer.extend(weights[name] for name in reversed(names))
    keep_only(small.graph.input, lambda value: value.name not in weights)
    name_nodes(small.graph.node)
    return small
