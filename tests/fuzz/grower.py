"""A builder that knows the type of every value it makes and refuses nodes that ONNX would refuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import TensorProto, TypeProto, helper, numpy_helper
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError, infer_node_outputs

from tests.models.builder import Builder

MICROSOFT = "com.microsoft"
"""ONNX Runtime's own operators."""

MOST_ELEMENTS = 30_000
"""Of one tensor: kernels stay small enough to build and run in moments."""

SHARING = 0.3
"""How often a weight is one that another layer has already."""


class NoFitError(Exception):
    """The operator does not apply to what the graph holds."""


class Grower(Builder):
    """A graph that grows node by node; every value's shape and element type are known.

    Args:
        rng: of every choice.
        opset: of the model.
    """

    def __init__(self, rng: np.random.Generator, opset: int) -> None:
        super().__init__("fuzz", opset)
        self.rng = rng
        self.types: dict[str, TypeProto] = {}
        self.values: list[str] = []
        self._tensors: dict[str, TensorProto] = {}
        self._weights: dict[tuple[int, ...], list[str]] = {}

    # What there is.

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(dim.dim_value for dim in self.types[name].tensor_type.shape.dim)

    def rank(self, name: str) -> int:
        return len(self.shape(name))

    def dtype(self, name: str) -> int:
        return int(self.types[name].tensor_type.elem_type)

    def pick(self, fits: Callable[[str], bool] = lambda _: True, kinds: Sequence[int] = (TensorProto.FLOAT,)) -> str:
        """A value of one of these element types that fits; newer ones are likelier, so that graphs grow deep.

        Raises:
            NoFitError: if there is none.
        """
        found = [name for name in self.values if self.dtype(name) in kinds and fits(name)]
        if not found:
            raise NoFitError
        weights = np.arange(1, len(found) + 1, dtype=float) ** 1.5
        return found[int(self.rng.choice(len(found), p=weights / weights.sum()))]

    def one_of(self, choices: Sequence[int]) -> int:
        return int(choices[int(self.rng.integers(len(choices)))])

    def between(self, low: int, high: int) -> int:
        """Low and high included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    # What is added.

    def input(self, name: str, shape: Sequence[int | str], dtype: int = TensorProto.FLOAT) -> str:
        super().input(name, shape, dtype)
        self.types[name] = helper.make_tensor_type_proto(dtype, shape)
        self.values.append(name)
        return name

    def constant(self, values: ArrayLike, dtype: type[np.generic] | None = None) -> str:
        name = super().constant(values, dtype)
        tensor = self.weights[-1]
        self.types[name] = helper.make_tensor_type_proto(tensor.data_type, tuple(tensor.dims))
        self._tensors[name] = tensor
        return name

    def normal(self, *shape: int, scale: float = 1.0) -> str:
        """A random weight, at times one that exists already."""
        known = self._weights.get(shape, [])
        if known and self.chance(SHARING):
            return known[int(self.rng.integers(len(known)))]
        name = self.constant((scale * self.rng.standard_normal(shape)).astype(np.float32))
        self._weights.setdefault(shape, []).append(name)
        return name

    def positive(self, *shape: int) -> str:
        """A random weight between 0.5 and 1.5."""
        return self.constant((0.5 + self.rng.random(shape)).astype(np.float32))

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        """As in ``Builder``.

        Raises:
            NoFitError: if ONNX's inference refuses the node, or an output is empty, large or of unknown shape.
        """
        first = super().op(kind, *inputs, outputs=outputs, **attributes)
        node = self.nodes[-1]
        try:
            schema = onnx.defs.get_schema(kind, self.opset, "")
            made = infer_node_outputs(
                schema,
                node,
                {name: self.types[name] for name in inputs if name},
                {name: self._tensors[name] for name in inputs if name in self._tensors},
                opset_imports=[helper.make_opsetid("", self.opset)],
                ir_version=8,
            )
        except (onnx.defs.SchemaError, InferenceError, ValidationError, RuntimeError, ValueError) as error:
            self.nodes.pop()
            raise NoFitError from error
        if any(not _is_ordinary(made.get(name)) for name in node.output):
            self.nodes.pop()
            raise NoFitError
        self.types.update(made)
        self.values.extend(node.output)
        return first

    def foreign(self, kind: str, *inputs: str, shape: Sequence[int], **attributes: object) -> str:
        """An operator of com.microsoft with one output, fp32 of ``shape``.

        Raises:
            NoFitError: if the output is large.
        """
        if math.prod(shape) > MOST_ELEMENTS or min(shape, default=1) < 1:
            raise NoFitError
        made = super().op(kind, *inputs, domain=MICROSOFT, **attributes)
        self.types[made] = helper.make_tensor_type_proto(TensorProto.FLOAT, shape)
        self.values.append(made)
        return made

    def ends_in(self, kind: str, *inputs: str, rank: int, integer: bool = False, **attributes: object) -> None:
        """An operator whose output has sizes that depend on data; nothing reads it."""
        made = super().op(kind, *inputs, **attributes)
        dtype = TensorProto.INT64 if integer else TensorProto.FLOAT
        self.types[made] = helper.make_tensor_type_proto(dtype, [f"{made}_{axis}" for axis in range(rank)])

    def open(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        """An operator on values of sizes that depend on data, which the rest of the graph does not read."""
        return super().op(kind, *inputs, outputs=outputs, **attributes)

    def axes(self, axes: Sequence[int], as_input: bool) -> tuple[list[str], dict[str, object]]:
        """Axes as the operator's opset wants them: as an input or as an attribute."""
        return ([self.ints(*axes)], {}) if as_input else ([], {"axes": list(axes)})

    def finish(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The model, with these values as outputs."""
        values = [onnx.ValueInfoProto(name=name, type=self.types[name]) for name in outputs]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, values, self.weights)
        opsets = [helper.make_opsetid("", self.opset)]
        if any(node.domain for node in self.nodes):
            opsets.append(helper.make_opsetid(MICROSOFT, 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=8 if self.opset < 19 else 10)

    def sinks(self) -> list[str]:
        """Computed values that nothing reads, but for open ones, whose ends are said."""
        read = {name for node in self.nodes for name in node.input}
        return [name for node in self.nodes for name in node.output if name not in read and name in self.types]


def _is_ordinary(proto: TypeProto | None) -> bool:
    if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return False
    dims = proto.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") and dim.dim_value > 0 for dim in dims):
        return False
    return math.prod(dim.dim_value for dim in dims) <= MOST_ELEMENTS


def array_of(tensor: TensorProto) -> np.ndarray:
    """Its values."""
    return numpy_helper.to_array(tensor)
