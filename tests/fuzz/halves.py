"""Random graphs whose floating point numbers have 16 bits."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper

from tests.fuzz.grower import NoFitError

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16

KEPT = {"Resize": (2,)}
"""Operator → inputs that stay numbers of 32 bits."""


def in_halves(model: ModelProto) -> ModelProto:
    """``model`` with every number of 32 bits as one of 16, changed in place.

    Raises:
        NoFitError: if an operator does not take them.
    """
    graph = model.graph
    kept = {node.input[at] for node in graph.node for at in KEPT.get(node.op_type, ()) if at < len(node.input)}
    for tensor in graph.initializer:
        if tensor.data_type == FLOAT and tensor.name not in kept:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == FLOAT:
            value.type.tensor_type.elem_type = HALF
    for attribute in (each for node in graph.node if node.op_type == "Cast" for each in node.attribute):
        attribute.i = HALF if attribute.i == FLOAT else attribute.i
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        raise NoFitError from error
    return model
