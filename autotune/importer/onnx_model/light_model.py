"""Models that are given to ONNX Runtime without their large weights being serialised: those are passed beside them.

Serialising and parsing cost as much as all of a model's bytes being copied several times, and protobuf ends at 2 GB.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from autotune.importer.onnx_model.graph_walk import reads
from autotune.importer.onnx_model.shapes import is_large, without_weights
from autotune.importer.onnx_model.tensors import array_of

PASSED = frozenset(
    getattr(TensorProto, name)
    for name in ("FLOAT", "DOUBLE", "FLOAT16", "INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64")
)
"""Types that NumPy and ONNX Runtime both have; tensors of others stay in the model."""

BESIDE = "beside"
"""Place of a placeholder's data: nowhere that is ever read."""


@dataclass(frozen=True)
class LightModel:
    """A model and its large weights.

    Attributes:
        proto: the model, with a placeholder for each of ``weights`` among its initialisers.
        weights: name → array; nobody writes to them.
    """

    proto: onnx.ModelProto
    weights: Mapping[str, NDArray[Any]]

    def whole(self) -> onnx.ModelProto:
        """The model with all of its data inside."""
        copy = deepcopy(self.proto)
        for tensor in copy.graph.initializer:
            if tensor.name in self.weights:
                tensor.CopyFrom(numpy_helper.from_array(self.weights[tensor.name], tensor.name))
        return copy


def light(model: onnx.ModelProto, beside: Mapping[str, NDArray[Any]] | None = None) -> LightModel:
    """``model`` with its large weights beside it; it is not changed. Initialisers that nothing reads are left out.

    Args:
        beside: the weights that it has placeholders for; others may be among them.
    """
    proto, weights = without_weights(model), {}
    used = reads(model.graph)
    for tensor in model.graph.initializer:
        if not used[tensor.name]:
            continue  # ONNX Runtime drops it, and then does not know what was passed for it
        if beside is not None and tensor.name in beside:
            weights[tensor.name] = beside[tensor.name]
            proto.graph.initializer.append(tensor)
        elif tensor.data_type in PASSED and is_large(tensor):
            weights[tensor.name] = array_of(tensor)
            proto.graph.initializer.append(placeholder(tensor.name, tensor))
        else:
            proto.graph.initializer.append(tensor)
    return LightModel(proto, weights)


def placeholder(name: str, like: TensorProto) -> TensorProto:
    """A tensor of the shape and type of ``like`` that has its data elsewhere."""
    tensor = TensorProto(name=name, data_type=like.data_type, dims=like.dims, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=BESIDE)
    return tensor
