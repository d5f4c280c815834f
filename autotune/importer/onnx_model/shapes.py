"""Shapes of a model: bind its inputs, infer all others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import TensorProto, TensorShapeProto, ValueInfoProto, helper
from onnx.shape_inference import InferenceError

from costmodels.choices import did_you_mean
from schedules.errors import ModelError, UsageError, first_line

MAX_TENSOR_BYTES = 4 << 30
"""Largest tensor that is accepted: a bound on memory against mistaken shapes and hostile files. Heuristic, not
measured."""

STANDARD_DOMAINS = ("", "ai.onnx")
OWN_DOMAIN = "tune"
"""Domain of operators that exist only inside the importer."""

SKELETON_ELEMENTS = 1024
"""Elements up to which an initialiser stays in a skeleton: shapes, axes and other values that shape inference reads.
Heuristic, not measured."""


def parse_input(text: str) -> tuple[str, tuple[int, ...]]:
    """``name:1x3x224x224`` → name and shape; the name may hold colons, and ``name:`` is a scalar.

    Raises:
        UsageError: if the text has another form.
    """
    name, colon, dims = text.rpartition(":")
    parts = dims.split("x") if dims else []
    if not colon or not name or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise UsageError(f"--input {text!r} is not NAME:DIMS; write for example --input data:1x3x224x224")
    return name, tuple(int(part) for part in parts)


def true_inputs(graph: onnx.GraphProto) -> list[ValueInfoProto]:
    """The graph's inputs without the weights that old exporters list among them."""
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def shape_text(shape: TensorShapeProto) -> str:
    """``batch x 3 x ? x ?``, with names for symbolic dimensions and ? for unnamed ones."""
    return " x ".join(_dim_text(dim) for dim in shape.dim) or "scalar"


def _dim_text(dim: TensorShapeProto.Dimension) -> str:
    return str(dim.dim_value) if _is_known(dim) else dim.dim_param or "?"


def _is_known(dim: TensorShapeProto.Dimension) -> bool:
    """Whether a dimension has a size. Exporters write -1 for "any"; 0 is a size, that of an empty tensor."""
    return dim.HasField("dim_value") and dim.dim_value >= 0


def bind_inputs(model: onnx.ModelProto, inputs: Mapping[str, Sequence[int]], name: str) -> None:
    """Fix the shape of every graph input, in place. A symbol that one input fixes is fixed wherever it is used.

    Args:
        model: its inputs may have symbolic, unknown or missing shapes.
        inputs: input name → shape, from ``--input``.
        name: the model's, for messages.

    Raises:
        UsageError: if ``inputs`` names no input or does not fit a rank, a fixed dimension or a shared symbol.
        ModelError: if an input is not a tensor, or still has no fixed shape; the message names the flag to give.
    """
    values = true_inputs(model.graph)
    unknown = [given for given in inputs if given not in {value.name for value in values}]
    if unknown:
        names = [value.name for value in values]
        raise UsageError(
            f"--input {unknown[0]}:… names no input of {name}; {did_you_mean(unknown[0], names)}"
            f"its inputs are: {', '.join(names) or 'none'}"
        )
    symbols: dict[str, int] = {}
    for value in values:
        if value.type.WhichOneof("value") != "tensor_type" or not value.type.tensor_type.elem_type:
            readers = dict.fromkeys(node.op_type for node in model.graph.node if value.name in node.input)
            by = f" (read by {', '.join(readers)})" if readers else ""
            raise ModelError(f"{name}: input {value.name!r}{by} is not a tensor; only tensors are supported")
        if value.name in inputs:
            _bind_given(value, tuple(inputs[value.name]), symbols, name)
    for value in values:
        _bind_symbols(value.type.tensor_type.shape, symbols)
    _require_fixed(values, name)
    for value in model.graph.output:
        _bind_symbols(value.type.tensor_type.shape, symbols)


def _bind_given(value: ValueInfoProto, given: tuple[int, ...], symbols: dict[str, int], name: str) -> None:
    """Set one input's shape to ``given`` and note which symbols that fixes."""
    tensor = value.type.tensor_type
    flag = f"--input {value.name}:{'x'.join(map(str, given))}"
    if any(size < 1 for size in given):
        raise UsageError(f"{flag} has a dimension below 1; every dimension must be at least 1")
    if not tensor.HasField("shape"):
        tensor.shape.CopyFrom(TensorShapeProto())
        tensor.shape.dim.extend(TensorShapeProto.Dimension(dim_value=size) for size in given)
        return
    described = f"input {value.name!r} of {name} is {shape_text(tensor.shape)}"
    if len(given) != len(tensor.shape.dim):
        raise UsageError(f"{flag} has {len(given)} dimensions but {described}; give {len(tensor.shape.dim)}")
    for dim, size in zip(tensor.shape.dim, given, strict=True):
        if _is_known(dim) and dim.dim_value != size:
            raise UsageError(f"{flag} does not fit: {described}; its fixed dimensions cannot change")
        if dim.dim_param and symbols.setdefault(dim.dim_param, size) != size:
            raise UsageError(
                f"{flag} does not fit: {described} and {dim.dim_param!r} is {symbols[dim.dim_param]} already; "
                "give the same size wherever the name occurs"
            )
        dim.dim_value = size


def _bind_symbols(shape: TensorShapeProto, symbols: Mapping[str, int]) -> None:
    for dim in shape.dim:
        if dim.dim_param in symbols:
            dim.dim_value = symbols[dim.dim_param]


def _require_fixed(values: Iterable[ValueInfoProto], name: str) -> None:
    open_values = [value for value in values if not _is_fixed(value.type.tensor_type)]
    if open_values:
        told = ", ".join(f"{value.name!r} is {_described(value)}" for value in open_values)
        flags = " ".join(f"--input {value.name}:{_example(value)}" for value in open_values)
        raise ModelError(f"{name}: input shapes are not fixed ({told}); fix them, for example: {flags}")


def _is_fixed(tensor: onnx.TypeProto.Tensor) -> bool:
    return tensor.HasField("shape") and all(_is_known(dim) for dim in tensor.shape.dim)


def _described(value: ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    return shape_text(tensor.shape) if tensor.HasField("shape") else "of unknown shape"


def _example(value: ValueInfoProto) -> str:
    """A plausible shape: what is fixed as it is, the first open dimension 1 (a batch), the others by rank."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return "1x3x224x224"
    size = 224 if len(tensor.shape.dim) == 4 else 128
    return "x".join(
        str(dim.dim_value) if _is_known(dim) else "1" if axis == 0 else str(size)
        for axis, dim in enumerate(tensor.shape.dim)
    )


def skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose large initialisers are graph inputs of their type: what checks and inference need, and small.

    Weights are then never serialised, so a model above protobuf's 2 GB is checked like any other.
    """
    small = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    for field in ("opset_import", "functions", "metadata_props"):
        getattr(small, field).extend(getattr(model, field))
    graph = small.graph
    graph.name = model.graph.name
    for field in ("node", "output", "value_info", "quantization_annotation"):
        getattr(graph, field).extend(getattr(model.graph, field))
    graph.input.extend(true_inputs(model.graph))
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= SKELETON_ELEMENTS:
            graph.initializer.append(tensor)
        else:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return small


def infer_shapes(model: onnx.ModelProto, name: str, strict: bool = True) -> None:
    """Replace what the model says of its inner and output shapes by what follows from its inputs, in place.

    Args:
        model: changed in place.
        name: the model's, for messages.
        strict: refuse nodes whose inputs do not fit; else the shapes of their results stay unknown.

    Raises:
        ModelError: naming the node whose inputs do not fit, or the tensor that is too large.
    """
    small = skeleton(model)
    _spell_defaults(small.graph)
    # ONNX infers nothing for operators of other domains; the shapes of their outputs were declared.
    own = {output for node in small.graph.node if node.domain not in STANDARD_DOMAINS for output in node.output}
    declared = [value for value in small.graph.value_info if value.name in own]
    del small.graph.value_info[:]
    small.graph.value_info.extend(declared)
    for value in small.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            if not _is_known(dim):
                dim.Clear()
    inferred = _infer(small, name, strict)
    for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        _check_bytes(value, name)
    _check_convolutions(inferred.graph, name)
    for field in ("value_info", "output"):
        del getattr(model.graph, field)[:]
        getattr(model.graph, field).extend(getattr(inferred.graph, field))


def _spell_defaults(graph: onnx.GraphProto) -> None:
    """Write out the default of STFT's ``onesided``, which ONNX's shape inference does not apply."""
    for node in graph.node:
        if node.op_type == "STFT" and all(attribute.name != "onesided" for attribute in node.attribute):
            node.attribute.append(helper.make_attribute("onesided", 1))


def _infer(model: onnx.ModelProto, name: str, strict: bool) -> onnx.ModelProto:
    try:
        try:
            return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        except InferenceError as error:
            # Complaints from inside an operator's own function body are onnx's (MeanVarianceNormalization has one at
            # every opset), not the model's: such shapes stay unknown and are checked when the body is expanded.
            if strict and str(error).count("Inference error(s)") == 1:
                raise
        return onnx.shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=True)
    except InferenceError as error:
        text = _inference_text(error)
        raise ModelError(f"{name}: shapes do not fit: {text}; check --input and the model") from error
    except (ValueError, RuntimeError) as error:  # an element type that does not exist, for one
        raise ModelError(f"{name} is not a valid ONNX model: {first_line(error)}; export the model again") from error


def _inference_text(error: InferenceError) -> str:
    """The first node's complaint, without the repeated tags."""
    text = " ".join(str(error).split()).replace("[ShapeInferenceError] ", "").replace("[TypeInferenceError] ", "")
    return first_line(text.removeprefix("Inference error(s): "))


WINDOWED = ("Conv", "AveragePool", "MaxPool", "LpPool")


def _check_convolutions(graph: onnx.GraphProto, name: str) -> None:
    """Channels of data and weights, which ONNX's inference does not compare, and windows that fit nowhere."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        if _is_fixed(tensor):
            shapes[value.name] = tuple(dim.dim_value for dim in tensor.shape.dim)
    for node in graph.node:
        if node.op_type in WINDOWED and not _window_fits(node, shapes):
            # ONNX and ONNX Runtime then say that one element is left, or none, as C++ rounds.
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


def _window_fits(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a convolution's or pool's window lies within its padded data at least once; True if that is unknown."""
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    data = shapes.get(node.input[0], ())[2:]
    kernel = given.get("kernel_shape") or (shapes.get(node.input[1], ())[2:] if node.op_type == "Conv" else ())
    if 0 in data or len(kernel) != len(data) or given.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        return True
    rank = len(data)
    dilations, pads = given.get("dilations") or [1] * rank, given.get("pads") or [0] * 2 * rank
    if len(dilations) != rank or len(pads) != 2 * rank:
        return True  # ONNX's own inference says what is wrong
    return all(
        (size - 1) * step + 1 <= extent + before + after
        for size, step, extent, before, after in zip(kernel, dilations, data, pads[:rank], pads[rank:], strict=True)
    )


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
