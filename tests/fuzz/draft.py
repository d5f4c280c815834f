"""A model that is being changed: its graph, the types of its values, and random choices among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper

from tests.fuzz.grower import NoFitError

FLOAT = TensorProto.FLOAT


def inner_graphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def names_read(node: NodeProto) -> Iterator[str]:
    """Names that a node and the graphs inside it read; they may be made inside."""
    yield from node.input
    for graph in inner_graphs(node):
        for inner in graph.node:
            yield from names_read(inner)
        yield from (value.name for value in graph.output)


def all_names(graph: GraphProto) -> set[str]:
    """Every name of a value in a graph and the graphs inside it."""
    names = {value.name for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info)}
    for node in graph.node:
        names.update(node.input, node.output)
        for inner in inner_graphs(node):
            names |= all_names(inner)
    return names


def rename(graph: GraphProto, old: str, new: str) -> None:
    """Rename a value wherever it stands, in inner graphs too."""
    for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        value.name = new if value.name == old else value.name
    for node in graph.node:
        for field in (node.input, node.output):
            for position, name in enumerate(field):
                if name == old:
                    field[position] = new
        for inner in inner_graphs(node):
            rename(inner, old, new)


class Draft:
    """A model in change.

    Args:
        model: it is changed in place.
        rng: of every choice.
        feed: inputs by name, if those are given; changed with the model.

    Attributes:
        types: value → type, as far as shape inference knows it.
    """

    def __init__(
        self, model: ModelProto, rng: np.random.Generator, feed: dict[str, NDArray[Any]] | None = None
    ) -> None:
        self.model, self.graph, self.rng, self.feed = model, model.graph, rng, feed
        self.types: dict[str, TypeProto] = {}
        self._count = 0
        self.infer()

    def infer(self) -> None:
        """Renew ``types``.

        Raises:
            NoFitError: if shapes do not fit.
        """
        try:
            inferred = onnx.shape_inference.infer_shapes(self.model, strict_mode=True, data_prop=True).graph
        except Exception as error:
            raise NoFitError from error
        self.types = {value.name: value.type for value in (*inferred.value_info, *inferred.input, *inferred.output)}
        for tensor in self.graph.initializer:
            self.types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)

    # What there is.

    @property
    def opset(self) -> int:
        """Version of ONNX's own operators."""
        return next(int(each.version) for each in self.model.opset_import if each.domain in ("", "ai.onnx"))

    @property
    def constants(self) -> dict[str, TensorProto]:
        return {tensor.name: tensor for tensor in self.graph.initializer}

    def shape(self, name: str) -> tuple[int, ...]:
        """The fixed shape of a tensor.

        Raises:
            NoFitError: if it has none.
        """
        tensor = self.types[name].tensor_type if name in self.types else TypeProto.Tensor()
        if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            raise NoFitError
        return tuple(dim.dim_value for dim in tensor.shape.dim)

    def dtype(self, name: str) -> int:
        return int(self.types[name].tensor_type.elem_type) if name in self.types else 0

    def is_fixed(self, name: str) -> bool:
        """Whether ``name`` is a tensor whose shape is known and not empty."""
        try:
            return min(self.shape(name), default=1) > 0
        except NoFitError:
            return False

    def values(self, fits: Callable[[str], bool] = lambda _: True, kinds: Sequence[int] = (FLOAT,)) -> list[str]:
        """Inputs and computed values of the outer graph that have one of these element types and fit."""
        fixed = self.constants
        names = [value.name for value in self.graph.input if value.name not in fixed]
        names += [name for node in self.graph.node for name in node.output if name]
        return [name for name in names if self.dtype(name) in kinds and self.is_fixed(name) and fits(name)]

    def pick(self, choices: Sequence[Any]) -> Any:
        """Any of ``choices``.

        Raises:
            NoFitError: if there is none.
        """
        if not choices:
            raise NoFitError
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def nodes(self, *kinds: str) -> list[int]:
        """Positions of ONNX's nodes of these kinds; of all where none is named."""
        return [
            number
            for number, node in enumerate(self.graph.node)
            if node.domain in ("", "ai.onnx") and (not kinds or node.op_type in kinds)
        ]

    def position(self, name: str) -> int:
        """Where nodes that read ``name`` may stand: behind the node that computes it."""
        return next((number + 1 for number, node in enumerate(self.graph.node) if name in node.output), 0)

    def fresh(self, stem: str) -> str:
        """A name that the model does not have."""
        known = all_names(self.graph)
        while True:
            self._count += 1
            name = f"{stem}_{self._count}"
            if name not in known:
                return name

    # What is added.

    def constant(self, array: NDArray[Any], stem: str = "c") -> str:
        """A new initialiser."""
        name = self.fresh(stem)
        self.graph.initializer.append(numpy_helper.from_array(np.array(array, order="C"), name))
        self.types[name] = helper.make_tensor_type_proto(self.graph.initializer[-1].data_type, array.shape)
        return name

    def insert(self, position: int, nodes: Sequence[NodeProto]) -> None:
        """Put ``nodes`` before the node at ``position``."""
        kept = list(self.graph.node)
        del self.graph.node[:]
        self.graph.node.extend([*kept[:position], *nodes, *kept[position:]])

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> NodeProto:
        """A node with fresh outputs; not in the graph yet."""
        names = [self.fresh(kind.lower())]
        names += [f"{names[0]}_{number}" for number in range(1, outputs)]
        return helper.make_node(kind, list(inputs), names, name=names[0], **attributes)

    def output(self, name: str, dtype: int = FLOAT) -> None:
        """Make ``name`` an output of the model too."""
        if name not in {value.name for value in self.graph.output}:
            self.graph.output.append(helper.make_tensor_value_info(name, dtype, None))

    def splice(self, name: str, nodes: Sequence[NodeProto]) -> None:
        """Put ``nodes``, which compute something of ``name``, between it and some of its readers; outputs stay."""
        readers = [
            (node, position) for node in self.graph.node for position, each in enumerate(node.input) if each == name
        ]
        outputs = {value.name for value in self.graph.output}
        last = nodes[-1].output[0]
        if readers:
            count = int(self.rng.integers(1, len(readers) + 1))
            for number in self.rng.permutation(len(readers))[:count]:
                node, position = readers[number]
                node.input[position] = last
        self.insert(self.position(name), nodes)
        if not readers or (name in outputs and self.chance(0.3)):
            self.output(last, self.dtype(name))


def finished(draft: Draft) -> ModelProto:
    """The checked model, with the types that inference finds for its outputs.

    Raises:
        NoFitError: if it is not valid.
    """
    model = draft.model
    del model.graph.value_info[:]
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        onnx.checker.check_model(inferred, full_check=True)
    except Exception as error:
        raise NoFitError from error
    types: dict[str, ValueInfoProto] = {value.name: value for value in inferred.graph.output}
    for value in model.graph.output:
        value.CopyFrom(types[value.name])
        if not value.type.tensor_type.HasField("shape") and value.type.HasField("tensor_type"):
            raise NoFitError
    return model
