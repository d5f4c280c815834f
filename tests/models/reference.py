"""What ONNX Runtime says a model computes, and inputs to ask it with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper

Arrays = dict[str, NDArray[np.generic]]

onnxruntime.set_default_logger_severity(3)


def random_inputs(model: onnx.ModelProto, seed: int = 0, high: int = 16) -> Arrays:
    """Standard normal values for every floating input, integers in [0, ``high``) for the others.

    Symbolic dimensions become 1.
    """
    rng = np.random.default_rng(seed)
    weights = {tensor.name for tensor in model.graph.initializer}
    arrays: Arrays = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        shape = tuple(dim.dim_value or 1 for dim in tensor.shape.dim)
        if np.issubdtype(dtype, np.floating):
            arrays[value.name] = rng.standard_normal(shape).astype(dtype)
        else:
            arrays[value.name] = rng.integers(0, high, shape).astype(dtype)
    return arrays


def run_reference(
    model: onnx.ModelProto, inputs: Mapping[str, NDArray[np.generic]], every: bool = False
) -> dict[str, NDArray[np.generic]]:
    """Outputs by name; with ``every``, those of all nodes. ONNX Runtime without its graph rewriting."""
    if every:
        model = _copy(model)
        known = {value.name for value in model.graph.output}
        names = [name for node in model.graph.node for name in node.output if name and name not in known]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
