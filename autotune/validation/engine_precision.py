"""The precision of an engine's products, read off what it runs: our kernels, and ONNX Runtime's optimised graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from autotune.artifact.composite import read_composite
from autotune.artifact.directory import read_tasks
from autotune.artifact.manifest import KERNELS, kind_of

TEMPLATES = frozenset({"conv2d", "depthwise", "channel_sums", "matmul", "batch_matmul", "cuda_gemm", "cuda_tensor"})
"""Our templates of kernels that multiply; their first parameter is what they read."""

DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "uint8": "int8"}
"""TVM's names of types → ours."""

MULTIPLY = ("Conv", "MatMul", "Gemm", "Attention")
QUANTISED = ("QLinear", "Integer", "QGemm", "QAttention", "DynamicQuantize", "QuantizeLinear")
"""Parts of the names of ONNX Runtime's operators that multiply, and of those that are of a quantised model."""


def artifact_precision(artifact: Path) -> str:
    """Such as ``fp32`` or ``bf16+fp32``, of the parts that are tuned."""
    parts = [artifact] if kind_of(artifact) == KERNELS else [part.path for part in read_composite(artifact).tuned]
    tasks = [task for part in parts for task in read_tasks(part)[0] if task.template in TEMPLATES]
    return "+".join(sorted({DTYPES.get(task.dtypes[0], task.dtypes[0]) for task in tasks} or {"fp32"}))


def onnxruntime_precision(model: Path, options: Any) -> str:
    """Such as ``fp32`` or ``fp32+int8``. Its CPU provider has no products of 16-bit floats: it casts them to fp32.

    Args:
        model: an ONNX file; its folder is written to.
        options: ``onnxruntime.SessionOptions`` that it will be run with.
    """
    if not any(_has(node, QUANTISED) for node in onnx.load(model, load_external_data=False).graph.node):
        return "fp32"
    import onnxruntime  # optional: an extra

    optimised = model.with_suffix(".optimised.onnx")
    options.optimized_model_filepath = str(optimised)
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    options.optimized_model_filepath = ""
    nodes = [node for node in onnx.load(optimised, load_external_data=False).graph.node if _has(node, MULTIPLY)]
    return "+".join(sorted({"int8" if _has(node, QUANTISED) else "fp32" for node in nodes} or {"fp32"}))


def _has(node: onnx.NodeProto, words: tuple[str, ...]) -> bool:
    return any(word in node.op_type for word in words)
