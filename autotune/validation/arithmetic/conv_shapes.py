"""Shapes of convolutions that no inference knows, as behind slices of computed sizes: those of a run on zeros."""

from __future__ import annotations

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
