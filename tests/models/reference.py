"""What ONNX Runtime says a model computes, and inputs to ask it with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper

Arrays = dict[str, NDArray[np.generic]]

EXACT_SUMS = "session.x64quantprecision"
"""Option of ONNX Runtime against the saturating sums of its products of unsigned and signed bytes without VNNI. Its
rewriting must be on."""

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


def reference_session(model: onnx.ModelProto, rewritten: bool = True) -> onnxruntime.InferenceSession:
    """A session of ONNX Runtime on the CPU, whose sums of products of bytes are exact on every processor.

    Args:
        rewritten: as ONNX Runtime rewrites graphs; else node by node, in one thread.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry(EXACT_SUMS, "1")
    if not rewritten:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_reference(
    model: onnx.ModelProto, inputs: Mapping[str, NDArray[np.generic]], every: bool = False
) -> dict[str, NDArray[np.generic]]:
    """Outputs by name; with ``every``, those of all nodes. ONNX Runtime without its graph rewriting."""
    if every:
        model = _copy(model)
        known = {value.name for value in model.graph.output}
        names = [name for node in model.graph.node for name in node.output if name and name not in known]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = reference_session(model, rewritten=False)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
