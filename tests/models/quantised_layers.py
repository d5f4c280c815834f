"""A quantised model cut at its quantised tensors, so that every layer is compared alone.

Over a whole model one quantum here and there grows into other quanta later. Here every layer reads what ONNX Runtime
made of the layers before it, so what differs is the layer's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from tests.models.reference import reference_session

Arrays = Mapping[str, NDArray[Any]]

BYTES = (TensorProto.UINT8, TensorProto.INT8)

READ = "/read"
"""What the name of a quantised tensor is followed by where layers read it."""


def quantised_tensors(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The tensors of bytes that nodes make of the model's inputs, in order."""
    inferred = onnx.shape_inference.infer_shapes(model)
    values = {value.name: value for value in [*inferred.graph.value_info, *inferred.graph.output]}
    computed = {value.name for value in model.graph.input} - {weight.name for weight in model.graph.initializer}
    quantised = []
    for node in model.graph.node:
        if computed.intersection(node.input):
            computed.update(node.output)
            known = [values[name] for name in node.output if name in values]
            quantised += [value for value in known if value.type.tensor_type.elem_type in BYTES]
    return quantised


def cut_at_quantised(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` whose quantised tensors are outputs, and inputs (name and ``READ``) of those who read them."""
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    graph, tensors = cut.graph, quantised_tensors(model)
    names = {value.name for value in tensors}
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in names:
                node.input[place] = name + READ
    outputs = {value.name for value in graph.output}
    for value in tensors:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        graph.input.append(helper.make_tensor_value_info(value.name + READ, value.type.tensor_type.elem_type, shape))
        if value.name not in outputs:
            graph.output.append(value)
    return cut


def layer_inputs(model: onnx.ModelProto, feed: Arrays) -> dict[str, NDArray[Any]]:
    """Inputs of the cut model: ``feed``, and the quantised tensors that ONNX Runtime makes of it."""
    whole, tensors = onnx.ModelProto(), quantised_tensors(model)
    whole.CopyFrom(model)
    known = {value.name for value in whole.graph.output}
    whole.graph.output.extend(value for value in tensors if value.name not in known)
    names = [value.name for value in tensors]
    outputs = _run(whole, names, feed)
    return {**feed, **{name + READ: array for name, array in zip(names, outputs, strict=True)}}


@dataclass(frozen=True)
class Quanta:
    """How far one layer's output is from ONNX Runtime's.

    Attributes:
        elements: of the output.
        differing: of them, those that differ at all.
        most: largest difference in quanta.
    """

    name: str
    elements: int
    differing: int
    most: int


def layer_quanta(cut: onnx.ModelProto, feed: Arrays, ours: Mapping[str, NDArray[Any]]) -> list[Quanta]:
    """Every layer's output against ONNX Runtime's on the same inputs.

    Args:
        cut: of ``cut_at_quantised``.
        ours: output name → array.
    """
    kinds = {value.name: value.type.tensor_type.elem_type for value in cut.graph.output}
    names = [name for name in ours if kinds[name] in BYTES]
    quanta = []
    for name, theirs in zip(names, _run(cut, names, feed), strict=True):
        difference = np.abs(ours[name].astype(np.int32) - theirs.astype(np.int32))
        quanta.append(Quanta(name, difference.size, int(np.count_nonzero(difference)), int(difference.max(initial=0))))
    return quanta


def _run(model: onnx.ModelProto, names: list[str], feed: Arrays) -> list[NDArray[Any]]:
    return list(reference_session(model).run(names, dict(feed)))
