"""Models of one operator that is not among ONNX's standard ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MICROSOFT = "com.microsoft"


def floats(*shape: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed + sum(shape)).standard_normal(shape) * scale).astype(np.float32)


def integers(low: int, high: int, *shape: int, dtype: Any = np.uint8) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(low, high, shape).astype(dtype)


@dataclass(frozen=True)
class Case:
    """One node.

    Attributes:
        inputs: arrays in order, None for those left out.
        weights: places of inputs that are constants of the model.
        outputs: ONNX types of the outputs; 0 for one that is left out.
    """

    kind: str
    inputs: tuple[np.ndarray | None, ...]
    weights: tuple[int, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[int, ...] = (TensorProto.FLOAT,)
    opset: int = 17
    domain: str = MICROSOFT
    version: int = 1
    label: str = ""

    def __str__(self) -> str:
        return f"{self.kind}-{self.label}" if self.label else self.kind

    def model(self) -> onnx.ModelProto:
        names = [f"x{place}" if array is not None else "" for place, array in enumerate(self.inputs)]
        names_made = [f"y{place}" if kind else "" for place, kind in enumerate(self.outputs)]
        node = helper.make_node(self.kind, names, names_made, "one", domain=self.domain, **self.attributes)
        arrays = {name: array for name, array in zip(names, self.inputs, strict=True) if array is not None}
        constants = {f"x{place}" for place in self.weights} & arrays.keys()
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in arrays.items()
            if name not in constants
        ]
        outputs = [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in zip(names_made, self.outputs, strict=True)
            if kind
        ]
        tensors = [numpy_helper.from_array(arrays[name], name) for name in sorted(constants)]
        graph = helper.make_graph([node], self.kind, inputs, outputs, tensors)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(self.domain or MICROSOFT, self.version)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feed(self) -> dict[str, np.ndarray]:
        named = {f"x{place}": array for place, array in enumerate(self.inputs) if array is not None}
        return {name: array for name, array in named.items() if int(name[1:]) not in self.weights}
