"""Simplify a checked model: functions expanded, constants folded, and what the importer handles badly rewritten.

The interface stays: the same inputs and outputs, by name, order and shape.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import onnx
import onnx.version_converter
from onnx import ModelProto, helper

from autotune.importer.conversion.flat_model import inline_functions, with_weights
from autotune.importer.conversion.foreign import expand_foreign
from autotune.importer.conversion.host_strings import set_strings_apart, spec_of
from autotune.importer.conversion.packed_outputs import set_frame
from autotune.importer.conversion.resolve import resolve
from autotune.importer.fusion.column_parts import take_columns_apart
from autotune.importer.fusion.fusion_graph import fuse
from autotune.importer.integers.integer_graph import make_integer
from autotune.importer.low_bits.low_bit_graph import as_bytes, has_packed, join_products, keep_packed
from autotune.importer.onnx_model.graph_edits import drop_unused, split_batch_norms, tidy
from autotune.importer.onnx_model.graph_walk import walk_nodes
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS, infer_shapes, is_fixed, skeleton, true_inputs
from autotune.importer.onnx_model.tensors import array_of
from autotune.importer.rewriting.folding import fold
from autotune.importer.rewriting.registry import rewrite
from schedules.errors import ModelError, first_line

MIN_OPSET = 13
"""Relax's converters follow ONNX from this opset on (axes as inputs, Softmax along one axis)."""

COORDINATES = 11
"""Opset from which a Resize says how it counts; before, it counted as with ``asymmetric``."""

UNCONVERTED = ("BatchNormalization", "MeanVarianceNormalization")
"""Operators of which ONNX's converter refuses a form: they are written out before."""

LARGEST_WEIGHT = 1 << 27
"""Elements of a constant up to which it is computed from weights at import. Heuristic, not measured."""

logger = logging.getLogger(__name__)


def simplify(model: ModelProto, expand: Collection[str] = (), activations: str = "uint8") -> ModelProto:
    """An equivalent, simpler model; ``model`` is left as it is.

    Args:
        model: as ``load_model`` gives it.
        expand: standard operators to replace by the function body that ONNX defines them with, such as ``"Selu"``.
        activations: uint8 or int8, which products of quantised tensors read, summed as integers; "" where all that is
            between two quantisers becomes fp32.

    Raises:
        ModelError: if a function cannot be expanded, or the expanded model's shapes do not fit.
    """
    small = inline_functions(skeleton(model))
    before, after = set_strings_apart(small)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value.name for value in small.graph.input if value.name not in weights]
    if expand_foreign(small, inputs):
        infer_shapes(small, small.graph.name or "model")  # ONNX could not check the inputs of these operators before
    small = _raise_opset(small)
    if has_packed(small):
        _declare_resolved(small, inputs, expand)
        keep_packed(small, inputs)
    if activations:
        make_integer(small, inputs, {tensor.name: tensor for tensor in model.graph.initializer}, activations)
    small, steps = resolve(small, inputs, expand)
    if all(node.domain in STANDARD_DOMAINS for node in small.graph.node):
        small = _raise_opset(small)  # what stood in the way may be gone
    given = model
    model = with_weights(small, model)
    join_products(model)
    as_bytes(model)
    fold(model, LARGEST_WEIGHT)
    fuse(model)
    split_batch_norms(model.graph)
    take_columns_apart(model)
    drop_unused(model.graph)
    infer_shapes(model, model.graph.name or "model")
    set_frame(model, given, [spec_of(value) for value in true_inputs(given.graph)], (before, [*steps, *after]))
    return model


def _declare_resolved(small: ModelProto, inputs: list[str], expand: Collection[str]) -> None:
    """Give ``small``, in place, its shapes, also those that only ``resolve`` finds, as behind a mask's ``Range``."""
    tidy(small.graph)
    infer_shapes(small, small.graph.name or "model", strict=False)
    try:
        resolved, _ = resolve(ModelProto.FromString(small.SerializeToString()), inputs, expand)
    except ModelError:  # the model is resolved again when weights are packed, and refused by then if it must be
        return
    made = {name for node in small.graph.node for name in node.output} - {value.name for value in small.graph.output}
    fixed = (value for value in resolved.graph.value_info if is_fixed(value.type.tensor_type))
    found = {value.name: value for value in fixed if value.name in made}
    kept = [value for value in small.graph.value_info if value.name not in found]
    del small.graph.value_info[:]
    small.graph.value_info.extend([*kept, *found.values()])


def _raise_opset(model: ModelProto) -> ModelProto:
    """Convert to ``MIN_OPSET`` where ONNX's converter can and the result still checks; else leave the opset."""
    version = next((opset.version for opset in model.opset_import if opset.domain in STANDARD_DOMAINS), MIN_OPSET)
    if version >= MIN_OPSET:
        return model
    rewrite(model, only=UNCONVERTED)
    try:
        del model.graph.value_info[:]  # what a Dropout makes had other types in old versions
        converted = onnx.version_converter.convert_version(model, MIN_OPSET)
        if version < COORDINATES:
            _say_coordinates(converted)
        onnx.checker.check_model(converted, full_check=True)
    except (RuntimeError, ValueError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        logger.warning("model stays at opset %d: %s", version, first_line(error))
        return model
    if not _same_interface(converted, model):  # its Scan 8 → 9 drops the batch dimension of the whole graph
        logger.warning("model stays at opset %d: the conversion changes its inputs or outputs", version)
        return model
    return converted


def _say_coordinates(model: ModelProto) -> None:
    """Give every Resize, in place, the attributes that mean what it was before opset 11: the converter forgets them."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in walk_nodes(model.graph.node):
        if node.op_type != "Resize":
            continue
        said = {"coordinate_transformation_mode": "asymmetric"}
        mode = next((attribute.s for attribute in node.attribute if attribute.name == "mode"), b"nearest")
        if mode == b"nearest":
            scales = constants.get(node.input[2]) if len(node.input) > 2 else None
            said["nearest_mode"] = "ceil" if scales is not None and (array_of(scales) < 1).any() else "floor"
        for index in reversed(range(len(node.attribute))):
            if node.attribute[index].name in said:
                del node.attribute[index]
        node.attribute.extend(helper.make_attribute(name, value) for name, value in said.items())


def _same_interface(one: ModelProto, other: ModelProto) -> bool:
    """Whether inputs and outputs have the same names and types, in order. Unknown output shapes equal any."""

    def known(value: onnx.ValueInfoProto) -> tuple[str, int, list[int]]:
        tensor = value.type.tensor_type
        return value.name, tensor.elem_type, [dim.dim_value for dim in tensor.shape.dim]

    pairs = [
        *zip(one.graph.input, other.graph.input, strict=False),
        *zip(one.graph.output, other.graph.output, strict=False),
    ]
    counts = len(one.graph.input) == len(other.graph.input) and len(one.graph.output) == len(other.graph.output)
    return counts and all(known(a) == known(b) or not (known(a)[2] and known(b)[2]) for a, b in pairs)
