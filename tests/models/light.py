"""The nine light topologies of the ONNX package, with random weights instead of their constants.

Their constants make every wrong kernel pass: all outputs are equal. The topologies are real.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import numpy_helper

from tests.models.weights import refill

LIGHT = {
    "alexnet": "light_bvlc_alexnet",
    "densenet121": "light_densenet121",
    "inception_v1": "light_inception_v1",
    "inception_v2": "light_inception_v2",
    "resnet50": "light_resnet50",
    "shufflenet": "light_shufflenet",
    "squeezenet": "light_squeezenet",
    "vgg19": "light_vgg19",
    "zfnet512": "light_zfnet512",
}
"""Our name → file stem in the ONNX package."""

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def light(name: str, seed: int = 0, batch: int | str = 1) -> onnx.ModelProto:
    """One of ``LIGHT`` (3×224×224, opset 9), with weights from ``seed``; a name as batch leaves it open."""
    model = onnx.load(FOLDER / f"{LIGHT[name]}.onnx")
    if batch != 1:
        _rebatch(model, batch)
    return refill(model, seed)


def _rebatch(model: onnx.ModelProto, batch: int | str) -> None:
    """Change the batch size that the files fix at 1: in inputs, outputs and reshapes (where 0 keeps a dimension)."""
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    filled = {node.output[0] for node in graph.node if node.op_type == "ConstantOfShape"}
    for value in (*graph.input, *graph.output):
        if value.name not in weights:
            size = value.type.tensor_type.shape.dim[0]
            if isinstance(batch, str):
                size.dim_param = batch
            else:
                size.dim_value = batch
    for node in graph.node:
        if node.op_type == "Reshape" and node.input[0] not in weights.keys() | filled:
            shape = numpy_helper.to_array(weights[node.input[1]]).copy()
            shape[0] = 0
            weights[node.input[1]].CopyFrom(numpy_helper.from_array(shape, node.input[1]))
