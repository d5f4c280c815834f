"""Facts that are known of a graph's values before it runs: constants, types and shapes."""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, helper

from autotune.host.third_party import ThirdPartyError, third_party
from autotune.importer.onnx_model.graph_walk import Names, subgraphs
from autotune.importer.onnx_model.shapes import SKELETON_ELEMENTS, STANDARD_DOMAINS, fixed_shape
from autotune.importer.onnx_model.tensors import array_of, fill_tensor

Array = NDArray[Any]


class Scope:
    """A graph's constants, and the type and shape of its values, where they are known.

    Args:
        inputs: names of what is not known before the model runs, where ``model`` is a skeleton: its other inputs are
            large weights.

    Attributes:
        versions: domain → version of its operators.
        opset: version of the standard operators.
        given: names of initialisers, and in a skeleton of the inputs that stand for large ones.
        shapes: value → static shape.
        ranks: value → how many axes it has, also where some sizes are not known.
        types: value → ONNX element type.
        made: names of what nodes make.
        sequences: sequence → the tensors that it consists of, where they are known.
        settled: whether nothing is left to fold, so that what is unknown now stays unknown until the model runs.
    """

    def __init__(self, model: ModelProto, inputs: Collection[str] = ()) -> None:
        self.graph: GraphProto = model.graph
        self.versions = {"" if o.domain in STANDARD_DOMAINS else o.domain: o.version for o in model.opset_import}
        self.opset = self.versions.get("", 13)
        self.tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self.given = {*self.tensors, *(value.name for value in model.graph.input)} - {*inputs}
        self._arrays: dict[str, Array] = {}
        self.settled = False
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.types: dict[str, int] = {}
        self.ranks: dict[str, int] = {}
        for value in (*model.graph.input, *model.graph.value_info, *model.graph.output):
            self.note(value)
        for tensor in model.graph.initializer:
            self.shapes[tensor.name] = tuple(tensor.dims)
            self.types[tensor.name] = tensor.data_type
            self.ranks[tensor.name] = len(tensor.dims)
        self.sequences: dict[str, tuple[str, ...]] = {}
        self._absent: set[str] = {""}
        self.made = {name for node in model.graph.node for name in node.output}
        for node in model.graph.node:
            self._note_sequence(node)

    @cached_property
    def names(self) -> Names:
        """For what takes a new name in the graph."""
        return Names(self.graph)

    def _note_sequence(self, node: onnx.NodeProto) -> None:
        if node.op_type == "SequenceConstruct":
            self.sequences[node.output[0]] = tuple(node.input)
        elif node.op_type == "SequenceEmpty":
            self.sequences[node.output[0]] = ()
        elif node.op_type in ("Identity", "Optional") and node.input and node.input[0] in self.sequences:
            self.sequences[node.output[0]] = self.sequences[node.input[0]]
        elif node.op_type == "Optional" and (not node.input or not node.input[0]):
            self._absent.add(node.output[0])

    def is_absent(self, name: str) -> bool:
        """Return whether an optional value is known to hold nothing; "" is one that is left out."""
        return name in self._absent

    def note(self, value: onnx.ValueInfoProto) -> None:
        """Take over type and shape of a value, as far as they are fixed."""
        if value.type.WhichOneof("value") != "tensor_type":
            return
        tensor = value.type.tensor_type
        if tensor.elem_type:
            self.types[value.name] = tensor.elem_type
        if tensor.HasField("shape"):
            self.ranks[value.name] = len(tensor.shape.dim)
        if (shape := fixed_shape(value)) is not None:
            self.shapes[value.name] = shape

    def deduce(self, node: NodeProto) -> None:
        """Take over types and shapes of what ``node`` makes that are not known yet, where ONNX can infer them."""
        wanted = [name for name in node.output if name and not (name in self.types and name in self.shapes)]
        if not wanted or node.domain not in STANDARD_DOMAINS or not onnx.defs.has(node.op_type, self.opset):
            return
        if any(True for _ in subgraphs(node)):
            return  # what a body reads from outside is not told to the inference of one node
        types = {name: self.described(name).type for name in node.input if name in self.types}
        data = {
            name: self.tensors[name]
            for name in node.input
            if name in self.tensors and math.prod(self.tensors[name].dims) <= SKELETON_ELEMENTS
        }
        try:
            with third_party():
                schema = onnx.defs.get_schema(node.op_type, self.opset, "")
                opsets = [helper.make_opsetid("", self.opset)]
                inferred = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=opsets)
        except ThirdPartyError:  # inference over the whole graph says what does not fit, in the user's words
            return
        for name in wanted:
            if name in inferred:
                self.note(onnx.ValueInfoProto(name=name, type=inferred[name]))

    def described(self, name: str) -> onnx.ValueInfoProto:
        """A value with the type and shape that are known of it."""
        if name not in self.types:
            return onnx.ValueInfoProto(name=name)
        return onnx.ValueInfoProto(
            name=name, type=helper.make_tensor_type_proto(self.types[name], self.shapes.get(name))
        )

    def array(self, name: str) -> Array | None:
        """The constant called ``name``, else None."""
        if name in self.tensors and name not in self._arrays:
            self._arrays[name] = array_of(self.tensors[name])
        return self._arrays.get(name)

    def add(self, name: str, array: Array) -> None:
        """Make ``array`` a constant of the graph."""
        tensor = self.graph.initializer.add()
        fill_tensor(tensor, np.asarray(array), name)
        self.tensors[name], self._arrays[name] = tensor, np.asarray(array)
        self.shapes[name], self.types[name] = tuple(tensor.dims), tensor.data_type
        self.ranks[name] = len(tensor.dims)
