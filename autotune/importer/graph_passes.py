"""Passes on the ONNX graph: from a checked model to one of few operators, whose sizes are known.

The interface stays: the same inputs and outputs, by name, order and shape.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import deepcopy

import onnx
import onnx.version_converter
from onnx import ModelProto, helper

from autotune.contributions import contribution
from autotune.importer.conversion.flat_model import inline_functions, with_weights
from autotune.importer.conversion.foreign import expand_foreign
from autotune.importer.conversion.packed_outputs import has_strings, set_frame, spec_of
from autotune.importer.conversion.resolve import resolve
from autotune.importer.draft import GraphDraft
from autotune.importer.integers.integer_graph import make_integer
from autotune.importer.low_bits.low_bit_graph import has_packed, keep_packed
from autotune.importer.onnx_model.graph_edits import drop_unused, keep_only, tidy
from autotune.importer.onnx_model.graph_walk import walk_nodes
from autotune.importer.onnx_model.mend import drop_undeclared
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS, infer_shapes, is_fixed, skeleton, true_inputs
from autotune.importer.operators.resampling import BY_SCALE
from autotune.importer.rewriting.folding import fold
from autotune.importer.rewriting.registry import rewrite
from schedules.vocabulary.errors import ModelError, UnsupportedError, first_line

MIN_OPSET = 13
"""Relax's converters follow ONNX from this opset on (axes as inputs, Softmax along one axis)."""

COORDINATES = 11
"""First opset whose Resize says how it counts; older ones count as with ``asymmetric``."""

UNCONVERTED = ("BatchNormalization", "Hardmax", "MeanVarianceNormalization")
"""Operators that are written out before the conversion: ONNX's converter refuses them or changes what they compute."""

LARGEST_WEIGHT = 1 << 27
"""Elements of a constant up to which it is computed from weights at import. Heuristic, not measured."""

logger = logging.getLogger(__name__)


def in_place(change: Callable[[ModelProto], object]) -> Callable[[GraphDraft], None]:
    """A pass of a function that changes a model in place."""

    def run(draft: GraphDraft) -> None:
        change(draft.model)

    return run


def fold_weights(model: ModelProto) -> None:
    """Compute what depends on constants alone, large weights too."""
    fold(model, LARGEST_WEIGHT)


def expand_functions(draft: GraphDraft) -> None:
    """Expand the model's own functions; from here on the model is a skeleton."""
    draft.model = inline_functions(skeleton(draft.original))


def take_strings_out(draft: GraphDraft) -> None:
    """Leave what is done with strings to the host."""
    if has_strings(draft.model):
        take_apart = contribution("strings", f"{draft.name} computes with strings, which", UnsupportedError)
        draft.before, draft.after = take_apart(draft.model)
    weights = {tensor.name for tensor in draft.original.graph.initializer}
    draft.inputs = [value.name for value in draft.model.graph.input if value.name not in weights]


def replace_foreign(draft: GraphDraft) -> None:
    """Replace ONNX Runtime's own operators by standard ones."""
    if expand_foreign(draft.model, draft.inputs):
        infer_shapes(draft.model)  # ONNX could not check the inputs of these operators before


def raise_opset(draft: GraphDraft) -> None:
    """Convert to ``MIN_OPSET``, if ONNX can; where other domains' operators hinder it, it is tried again without."""
    draft.model = _converted(draft.model)


def keep_low_bits(draft: GraphDraft) -> None:
    """Keep weights of few bits packed."""
    if has_packed(draft.model):
        _declare_resolved(draft.model, draft.inputs)
        keep_packed(draft.model, draft.inputs)


def keep_integers(draft: GraphDraft) -> None:
    """Compute products of quantised tensors in integers."""
    if draft.activations:
        weights = {tensor.name: tensor for tensor in draft.original.graph.initializer}
        make_integer(draft.model, draft.inputs, weights, draft.activations)


def resolve_sizes(draft: GraphDraft) -> None:
    """Compute all sizes, unroll loops and apply rewrites, until nothing changes."""
    draft.after = [*resolve(draft.model, draft.inputs), *draft.after]


def restore_weights(draft: GraphDraft) -> None:
    """Put large weights back in place of the inputs that stood for them."""
    draft.model = with_weights(draft.model, draft.original)


def infer_again(draft: GraphDraft) -> None:
    """Drop what nothing reads, and check every shape."""
    drop_unused(draft.model.graph)
    infer_shapes(draft.model)


def note_frame(draft: GraphDraft) -> None:
    """Note what the host does around the kernels."""
    inputs = [spec_of(value) for value in true_inputs(draft.original.graph)]
    set_frame(draft.model, draft.original, inputs, (draft.before, draft.after))


def _declare_resolved(small: ModelProto, inputs: list[str]) -> None:
    """Give ``small``, in place, its shapes, also those that only ``resolve`` finds, as behind a mask's ``Range``."""
    tidy(small.graph)
    infer_shapes(small, strict=False)
    resolved = deepcopy(small)
    try:
        resolve(resolved, inputs)
    except ModelError:  # the model is resolved again when weights are packed, and refused by then if it must be
        return
    produced = {name for node in small.graph.node for name in node.output} - {
        value.name for value in small.graph.output
    }
    fixed = (value for value in resolved.graph.value_info if is_fixed(value.type.tensor_type))
    deduced = {value.name: value for value in fixed if value.name in produced}
    keep_only(small.graph.value_info, lambda value: value.name not in deduced)
    small.graph.value_info.extend(deduced.values())


def _converted(model: ModelProto) -> ModelProto:
    """Convert to ``MIN_OPSET`` where ONNX's converter can and the result still checks; else leave the opset."""
    version = next((opset.version for opset in model.opset_import if opset.domain in STANDARD_DOMAINS), MIN_OPSET)
    if version >= MIN_OPSET:
        return model
    rewrite(model, only=UNCONVERTED)
    foreign = {name for node in model.graph.node if node.domain not in STANDARD_DOMAINS for name in node.output}
    declared = [value for value in model.graph.value_info if value.name in foreign]
    say = logger.debug if foreign else logger.warning
    try:
        del model.graph.value_info[:]  # what a Dropout makes had other types in old versions
        model.graph.value_info.extend(declared)
        converted = onnx.version_converter.convert_version(model, MIN_OPSET)
        if version < COORDINATES:
            _say_coordinates(converted)
        checked = ModelProto.FromString(converted.SerializeToString())
        drop_undeclared(checked.graph)
        onnx.checker.check_model(checked, full_check=True)
    except (RuntimeError, ValueError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        say("model stays at opset %d: %s", version, first_line(error))
        return model
    if not _same_interface(converted, model):  # its Scan 8 → 9 drops the batch dimension of the whole graph
        say("model stays at opset %d: the conversion changes its inputs or outputs", version)
        return model
    return converted


def _say_coordinates(model: ModelProto) -> None:
    """Give every Resize, in place, the attributes that mean what it was before opset 11: the converter forgets them."""
    said = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": BY_SCALE}
    for node in walk_nodes(model.graph.node):
        if node.op_type == "Resize":
            keep_only(node.attribute, lambda attribute: attribute.name not in said)
            node.attribute.extend(helper.make_attribute(name, value) for name, value in said.items())


def _same_interface(one: ModelProto, other: ModelProto) -> bool:
    """Return whether inputs and outputs have the same names and types, in order. Unknown output shapes equal any."""

    def known(value: onnx.ValueInfoProto) -> tuple[str, int, list[int]]:
        tensor = value.type.tensor_type
        return value.name, tensor.elem_type, [dim.dim_value for dim in tensor.shape.dim]

    pairs = [
        *zip(one.graph.input, other.graph.input, strict=False),
        *zip(one.graph.output, other.graph.output, strict=False),
    ]
    counts = len(one.graph.input) == len(other.graph.input) and len(one.graph.output) == len(other.graph.output)
    return counts and all(known(a) == known(b) or not (known(a)[2] and known(b)[2]) for a, b in pairs)
