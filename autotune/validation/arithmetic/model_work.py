"""Shapes of a model's values, and how much arithmetic they mean."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from autotune.host.third_party import ThirdPartyError
from autotune.validation.arithmetic.onnxruntime_session import Session
from schedules.vocabulary.errors import ModelError

Shape = tuple[int | None, ...]


def conv_shapes(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Shapes of what the convolutions of ``model`` read and write, where ``shapes`` lacks a size.

    Empty if all are known, an input has an open size, or ONNX Runtime does not run the model on zeros.
    """
    convolutions = (node for node in model.graph.node if node.op_type == "Conv")
    names = dict.fromkeys(name for node in convolutions for name in (*node.input[:2], node.output[0]))
    unknown = [name for name in names if None in shapes.get(name, (None,))]
    weights = {weight.name for weight in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    if not unknown or any(None in shapes.get(value.name, (None,)) for value in inputs):
        return {}
    feed = {}
    for value in inputs:
        sizes = [size or 0 for size in shapes[value.name]]
        feed[value.name] = np.zeros(sizes, helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in unknown)
    try:
        arrays = Session(copy, optimised=False).run(feed)
    except (ThirdPartyError, ModelError):
        return {}
    return {name: array.shape for name, array in zip(unknown, arrays, strict=True)}


def multiplications(model: onnx.ModelProto) -> int:
    """Multiplications of the convolutions and products of matrices of ``model`` whose shapes are known."""
    shapes, total = value_shapes(model), 0
    for node in model.graph.node:
        result = [size or 1 for size in shapes.get(node.output[0], ())] if node.output else []
        if node.op_type in ("Conv", "QLinearConv"):
            weights = node.input[1 if node.op_type == "Conv" else 3]
            total += math.prod(result) * math.prod(size or 1 for size in shapes.get(weights, ())[1:])
        elif node.op_type in ("MatMul", "Gemm") and (left := shapes.get(node.input[0])):
            transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
            total += math.prod(result) * (left[0 if transposed else -1] or 1)
    return total


def value_shapes(model: onnx.ModelProto) -> dict[str, tuple[int | None, ...]]:
    """Shapes by value; None for sizes that are not known."""
    graph = model.graph
    shapes: dict[str, tuple[int | None, ...]] = {weight.name: tuple(weight.dims) for weight in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        if tensor.HasField("shape"):
            sizes = (dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
            shapes[value.name] = tuple(sizes)
    return shapes
