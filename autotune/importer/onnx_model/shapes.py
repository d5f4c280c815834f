"""Shapes of a model: inferred from those of its inputs, which ``input_shapes.py`` fixes."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping

import onnx
from onnx import TensorProto, TensorShapeProto, ValueInfoProto, helper
from onnx.shape_inference import InferenceError

from autotune.importer.onnx_model.graph_walk import attributes_of, walk_nodes
from autotune.interface import is_name
from schedules.vocabulary.errors import ModelError, first_line

MAX_TENSOR_BYTES = 4 << 30
"""Largest tensor that is accepted: a bound on memory against mistaken shapes and hostile files. Heuristic, not
measured."""

STANDARD_DOMAINS = ("", "ai.onnx")
MICROSOFT = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""
WRONG_OUTPUT = ("existing shape differ", "inferred and declared dimension")
"""Words of ONNX's inference where a declared shape is not the one that follows from the inputs."""

BAD_VALUES = ("Integer overflow", "Invalid rank for", "Data for input")
"""Complaints of ONNX's inference about values that it computes: integers beyond their range, a column beside a row,
for it takes all values for vectors, and one name in both branches of an If. The shapes may be right."""

OWN_DOMAIN = "tune"
"""Domain of operators that exist only inside the importer."""

LENGTHS = "tune.past_lengths"
"""Input that holds the positions in use of every row of the batch, int32 (batch,)."""

ATTENTION = "CachedAttention"
"""Our operator: queries, new keys, new values (batch, heads or groups, s, size), both caches, lengths, mask or nothing
→ the result of the queries' shape, and what were the presents."""

PLAIN_ATTENTION = "PlainAttention"
"""Our operator: queries, keys, values, each as its element of the attribute ``by_head`` says, and a mask or nothing →
the result. Its attributes are those of ``by_hand/plain_attention.PlainShape``."""

BYTE_LSTM = "DynamicQuantizeLSTM"
"""Our operator, of the operands of ONNX Runtime's: X in uint8, its scale and zero point; W, its scales and zero points;
R, its scales and zero points; biases; first h and c; whether a sequence has a step, (steps, batch, 1), or nothing."""

SKELETON_ELEMENTS = 1024
"""Elements up to which an initialiser stays in a skeleton: shapes, axes and other values that shape inference reads.
Heuristic, not measured."""

logger = logging.getLogger(__name__)


def know_domain(holder: onnx.ModelProto | onnx.FunctionProto, domain: str = OWN_DOMAIN) -> None:
    """Add ``domain`` to those that ``holder`` imports, in place, unless it has a version of it."""
    if all(opset.domain != domain for opset in holder.opset_import):
        holder.opset_import.append(helper.make_opsetid(domain, 1))


def true_inputs(graph: onnx.GraphProto) -> list[ValueInfoProto]:
    """The graph's inputs without the weights that old exporters list among them."""
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def shape_text(shape: TensorShapeProto) -> str:
    """``batch x 3 x ? x ?``, with names for symbolic dimensions and ? for unnamed ones."""
    sizes = (str(dim.dim_value) if is_known(dim) else dim_name(dim) or "?" for dim in shape.dim)
    return " x ".join(sizes) or "scalar"


def dim_name(dim: TensorShapeProto.Dimension) -> str:
    """The name of an open size, which is the same size wherever it occurs; empty if it has none.

    Exporters also write names that only say that a size is open: ``?``, ``-1``, ``None``. Such sizes are independent.
    """
    name: str = dim.dim_param.strip()
    return name if is_name(name) else ""


def is_known(dim: TensorShapeProto.Dimension) -> bool:
    """Return whether a dimension has a size. Exporters write -1 for "any"; 0 is a size, that of an empty tensor."""
    return dim.HasField("dim_value") and dim.dim_value >= 0


def is_fixed(tensor: onnx.TypeProto.Tensor) -> bool:
    """Return whether a tensor's shape is known, and every dimension of it."""
    return tensor.HasField("shape") and all(is_known(dim) for dim in tensor.shape.dim)


def fixed_shape(value: ValueInfoProto) -> tuple[int, ...] | None:
    """Return the shape of a tensor, if every dimension of it is known; else None."""
    tensor = value.type.tensor_type
    return tuple(dim.dim_value for dim in tensor.shape.dim) if is_fixed(tensor) else None


def is_large(tensor: TensorProto) -> bool:
    """Return whether an initialiser has more than ``SKELETON_ELEMENTS``."""
    return int(math.prod(tensor.dims)) > SKELETON_ELEMENTS


def skeleton(model: onnx.ModelProto, tables: bool = True) -> onnx.ModelProto:
    """A copy whose large initialisers are graph inputs of their type: what checks and inference need, and small.

    Weights are then never serialised, so a model above protobuf's 2 GB is checked like any other.

    Args:
        tables: as ``without_weights`` has it.
    """
    small = without_weights(model, tables)
    for tensor in model.graph.initializer:
        if is_large(tensor):
            value = helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            small.graph.input.append(value)
        else:
            small.graph.initializer.append(tensor)
    return small


CLASSICAL = "ai.onnx.ml"
"""Domain whose operators keep their tables, which may have millions of rows, as attributes."""


def without_weights(model: onnx.ModelProto, tables: bool = True) -> onnx.ModelProto:
    """A copy that has no initialisers, and does not list them among its inputs either.

    Args:
        tables: whether nodes of ``CLASSICAL`` keep long lists, which no checker and no shape inference reads.
    """
    small = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    for field in ("opset_import", "functions", "metadata_props"):
        getattr(small, field).extend(getattr(model, field))
    graph = small.graph
    graph.name = model.graph.name
    for field in ("output", "value_info", "quantization_annotation"):
        getattr(graph, field).extend(getattr(model.graph, field))
    if tables or all(node.domain != CLASSICAL for node in model.graph.node):
        graph.node.extend(model.graph.node)
    else:
        graph.node.extend(_without_lists(model.graph.node))
    graph.input.extend(true_inputs(model.graph))
    return small


def _without_lists(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """``nodes``, those of ``CLASSICAL`` without their long lists."""
    for node in nodes:
        if node.domain != CLASSICAL:
            yield node
            continue
        short = onnx.NodeProto(name=node.name, op_type=node.op_type, domain=node.domain)
        short.input.extend(node.input)
        short.output.extend(node.output)
        lengths = ((a, max(len(a.ints), len(a.floats), len(a.strings))) for a in node.attribute)
        short.attribute.extend(attribute for attribute, length in lengths if length <= SKELETON_ELEMENTS)
        yield short


def infer_shapes(model: onnx.ModelProto, name: str = "", strict: bool = True) -> None:
    """Replace what the model says of its inner and output shapes by what follows from its inputs, in place.

    Args:
        model: changed in place.
        name: the model's, for messages; "" for that of its graph.
        strict: refuse nodes whose inputs do not fit; else the shapes of their results stay unknown.

    Raises:
        ModelError: naming the node whose inputs do not fit, or the tensor that is too large.
    """
    name, small = name or model.graph.name or "model", skeleton(model, tables=False)
    _spell_defaults(small.graph)
    # ONNX infers nothing for operators of other domains; the shapes of their outputs were declared.
    own = {output for node in small.graph.node if node.domain not in STANDARD_DOMAINS for output in node.output}
    # Of such a value, inference may add a second entry without a type.
    typed = (value for value in small.graph.value_info if value.type.WhichOneof("value"))
    declared = {value.name: value for value in typed if value.name in own}
    del small.graph.value_info[:]
    small.graph.value_info.extend(declared.values())
    constants = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    inputs = {value.name: value.type for value in small.graph.input}
    for value in small.graph.output:
        if value.name in inputs:  # inference would forget what is known of the input
            value.type.CopyFrom(inputs[value.name])
        dims = value.type.tensor_type.shape.dim
        if value.name in constants and value.type.HasField("tensor_type"):  # of which inference finds nothing
            del dims[:]
            dims.extend(TensorShapeProto.Dimension(dim_value=size) for size in constants[value.name])
        for dim in dims:
            if not is_known(dim):
                dim.Clear()
    inferred = _with_true_outputs(small, name, strict)
    shapes = _fixed_shapes(inferred.graph)
    while _round_down(model.graph, shapes):
        _round_down(small.graph, shapes)
        inferred = _with_true_outputs(small, name, strict)
        shapes = _fixed_shapes(inferred.graph)
    for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        _check_bytes(value, name)
    _check_convolutions(inferred.graph, shapes, name)
    for field in ("value_info", "output"):
        del getattr(model.graph, field)[:]
        getattr(model.graph, field).extend(getattr(inferred.graph, field))


def _with_true_outputs(small: onnx.ModelProto, name: str, strict: bool) -> onnx.ModelProto:
    """``small`` with inferred shapes; what it declares for its outputs alone may be wrong."""
    try:
        return _infer(small, name, strict)
    except ModelError as error:  # ONNX Runtime warns of it
        if not any(sign in str(error) for sign in WRONG_OUTPUT):
            raise
        for value in small.graph.output:
            value.type.tensor_type.ClearField("shape")
        inferred = _infer(small, name, strict)
        logger.warning("%s: the shapes that it declares for its outputs are not those that it makes: %s", name, error)
        return inferred


def _spell_defaults(graph: onnx.GraphProto) -> None:
    """Write out the default of STFT's ``onesided``, which ONNX's shape inference does not apply."""
    for node in graph.node:
        if node.op_type == "STFT" and all(attribute.name != "onesided" for attribute in node.attribute):
            node.attribute.append(helper.make_attribute("onesided", 1))


def _infer(model: onnx.ModelProto, name: str, strict: bool) -> onnx.ModelProto:
    try:
        try:
            return _inferred(model, strict, values=True)
        except InferenceError as error:
            if not _is_of_values(error):
                raise
        return _inferred(model, strict, values=False)  # such constants are computed when they are folded
    except InferenceError as error:
        text = _inference_text(error)
        raise ModelError(f"{name}: shapes do not fit: {text}; check --input and the model") from error
    except (ValueError, RuntimeError) as error:  # an element type that does not exist, for one
        raise ModelError(f"{name} is not a valid ONNX model: {first_line(error)}; export the model again") from error


def _is_of_values(error: InferenceError) -> bool:
    return any(sign in str(error) for sign in BAD_VALUES)


def _has_unknown_bodies(model: onnx.ModelProto) -> bool:
    """Return whether a branch, a loop or a function has an operator that ONNX lacks.

    ONNX complains of what reads such a body's results, whose types it cannot know, unless the graph itself has one too.
    """
    functions = {(function.domain, function.name) for function in model.functions}
    versions = {opset.domain: opset.version for opset in model.opset_import}
    versions[""] = max(versions.get(domain, 1) for domain in STANDARD_DOMAINS)
    bodies = (model.graph.node, *(function.node for function in model.functions))
    for node in (node for nodes in bodies for node in walk_nodes(nodes)):
        domain = "" if node.domain in STANDARD_DOMAINS else node.domain
        known = onnx.defs.has(node.op_type, versions.get(domain, 1), domain)
        if not known and (node.domain, node.op_type) not in functions:
            return True
    return False


def _inferred(model: onnx.ModelProto, strict: bool, values: bool) -> onnx.ModelProto:
    """``model`` with the shapes that ONNX infers, with the ``values`` of shape arithmetic or without."""
    try:
        return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=values)
    except InferenceError as error:
        # Complaints from inside an operator's own function body are onnx's (MeanVarianceNormalization has one at every
        # opset), not the model's: such shapes stay unknown and are checked when the body is expanded.
        is_known = str(error).count("Inference error(s)") == 1 and not _has_unknown_bodies(model)
        if (strict and is_known) or _is_of_values(error):
            raise
    return onnx.shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=values)


def _inference_text(error: InferenceError) -> str:
    """The first node's complaint, without the repeated tags."""
    text = " ".join(str(error).split()).replace("[ShapeInferenceError] ", "").replace("[TypeInferenceError] ", "")
    return first_line(text.removeprefix("Inference error(s): "))


WINDOWED = ("Conv", "AveragePool", "MaxPool", "LpPool")


def _check_convolutions(graph: onnx.GraphProto, shapes: Mapping[str, tuple[int, ...]], name: str) -> None:
    """Channels of data and weights, which ONNX's inference does not compare, and windows that fit nowhere."""
    for node in graph.node:
        if node.op_type in WINDOWED and not _window_fits(node, shapes) and not _is_cut(node, shapes):
            raise ModelError(
                f"{name}: shapes do not fit: (op_type:{node.op_type}, node name: {node.name}): its window is larger "
                f"than its padded data {list(shapes[node.input[0]])}; check --input and the model"
            )
        if node.op_type not in ("Conv", "ConvTranspose") or not all(n in shapes for n in node.input[:2]):
            continue
        data, weight = shapes[node.input[0]], shapes[node.input[1]]
        groups = next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
        channels = weight[1] * groups if node.op_type == "Conv" else weight[0]
        if len(data) != len(weight) or data[1] != channels or groups < 1 or weight[0] % groups:
            raise ModelError(
                f"{name}: shapes do not fit: (op_type:{node.op_type}, node name: {node.name}): data {list(data)} does "
                f"not go with weights {list(weight)} in {groups} groups; check --input and the model"
            )


def _fixed_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Name → shape of the weights and values whose shape is known."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if (shape := fixed_shape(value)) is not None:
            shapes[value.name] = shape
    return shapes


def _round_down(graph: onnx.GraphProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Pools that round their size up where that makes no difference round it down, in place; whether there were any.

    A last window that would begin behind the input counts for nothing, but ONNX's inference counts it.
    """
    changed = False
    for node in graph.node:
        if node.op_type not in WINDOWED or node.domain not in STANDARD_DOMAINS:
            continue
        attributes = attributes_of(node)
        if not attributes.get("ceil_mode", 0) or attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
            continue
        axes = _axes_of(node, shapes)
        free = [(n + before + after - (k - 1) * d - 1, s, n + before) for n, k, s, d, before, after in axes]
        counted = [room % step for room, step, _ in free]
        behind = [-(-room // step) * step >= end for room, step, end in free]
        if any(counted) and all(late for rest, late in zip(counted, behind, strict=True) if rest):
            next(attribute for attribute in node.attribute if attribute.name == "ceil_mode").i = 0
            changed = True
    return changed


def _axes_of(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[int, int, int, int, int, int]]:
    """Size, taps, stride, dilation and padding before and behind of every axis of a convolution or pool.

    None where sizes are not known, or where ONNX's own inference says what is wrong.
    """
    attributes, size = attributes_of(node), shapes.get(node.input[0], ())[2:]
    kernel = attributes.get("kernel_shape") or (shapes.get(node.input[1], ())[2:] if node.op_type == "Conv" else ())
    rank = len(size)
    strides, dilations = (attributes.get(name) or [1] * rank for name in ("strides", "dilations"))
    pads = attributes.get("pads") or [0] * 2 * rank
    if {len(kernel), len(strides), len(dilations), len(pads) / 2} != {rank} or min(strides, default=1) < 1:
        return []
    return list(zip(size, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True))


def _window_fits(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether a convolution's or pool's window fits into its padded data; True if that is unknown."""
    axes = _axes_of(node, shapes)
    if attributes_of(node).get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or any(not axis[0] for axis in axes):
        return True
    return all((taps - 1) * step + 1 <= size + before + behind for size, taps, _, step, before, behind in axes)


def _is_cut(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether one element is left of what a pool's window covers of the data: as C++ rounds, or rounded up."""
    attributes, result = attributes_of(node), shapes.get(node.output[0], (0,))
    return node.op_type != "Conv" and min(result) > 0 and not any(d > 1 for d in attributes.get("dilations") or ())


def _check_bytes(value: ValueInfoProto, name: str) -> None:
    tensor = value.type.tensor_type
    sizes = [dim.dim_value for dim in tensor.shape.dim]
    if not tensor.elem_type or tensor.elem_type == TensorProto.STRING:
        return
    size = math.prod(max(size, 1) for size in sizes) * helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize
    if size > MAX_TENSOR_BYTES:
        raise ModelError(
            f"{name}: tensor {value.name!r} of shape {shape_text(tensor.shape)} takes {size / 2**30:.1f} GiB, "
            f"more than {MAX_TENSOR_BYTES >> 30}; give smaller input shapes"
        )
