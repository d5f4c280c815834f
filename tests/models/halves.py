"""Models whose tensors are floats of 16 bits: other models with every fp32 tensor as such."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter

OPSET, IR_VERSION = 22, 10
"""First opset whose convolutions, pools and recurrent layers take bfloat16, and a version of the file format for it."""


def in_halves(model: onnx.ModelProto, kind: int = TensorProto.BFLOAT16) -> onnx.ModelProto:
    """A copy of ``model`` with every float32 tensor in ``kind``."""
    short = version_converter.convert_version(model, OPSET)
    short.ir_version = IR_VERSION
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    for tensor in short.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(array.astype(dtype), tensor.name))
    del short.graph.value_info[:]
    for value in (*short.graph.input, *short.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = kind
    return short


def islands(seed: int = 0) -> onnx.ModelProto:
    """Products of bfloat16 around one of fp32, between casts; an output of either type."""
    rng = np.random.default_rng(seed)
    shapes = {"w0": (32, 64), "w1": (64, 64), "w2": (64, 40), "b2": (40,)}
    kinds = {name: np.dtype("float32" if name == "w1" else "bfloat16") for name in shapes}
    weights = {name: rng.standard_normal(shape) / 8 for name, shape in shapes.items()}
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["y0"], "short"),
        helper.make_node("Cast", ["y0"], ["y1"], "to_long", to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["y1", "w1"], ["y2"], "long"),
        helper.make_node("Tanh", ["y2"], ["wide"], "tanh"),
        helper.make_node("Cast", ["wide"], ["y3"], "to_short", to=TensorProto.BFLOAT16),
        helper.make_node("Relu", ["y3"], ["y4"], "relu"),
        helper.make_node("Gemm", ["y4", "w2", "b2"], ["narrow"], "short_again"),
    ]
    graph = helper.make_graph(
        nodes,
        "islands",
        [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, (24, 32))],
        [
            helper.make_tensor_value_info("narrow", TensorProto.BFLOAT16, (24, 40)),
            helper.make_tensor_value_info("wide", TensorProto.FLOAT, (24, 64)),
        ],
        [numpy_helper.from_array(array.astype(kinds[name]), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
