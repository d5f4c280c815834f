"""A captured graph on the disk: its key, its ONNX file and its artifact, in the user's cache folder."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autotune.contrib.torch.module_files import FOLDER, numpy_of, prune, quiet, write_onnx
from autotune.host.machine import host_target
from autotune.host.shared_files import private_folder
from autotune.options import Options, cache_folder
from autotune.versions import DISTRIBUTION, installed
from schedules.vocabulary.errors import ModelError

if TYPE_CHECKING:  # optional, and slow to import
    from torch.fx import GraphModule, Node

EXAMPLE = "example_value"
"""Key under which Dynamo keeps a node's fake tensor."""

KNOWN = frozenset({"torch", "_operator", "operator", "builtins", "math"})
"""Packages whose functions are told by their names and the versions."""


def is_weight(node: Node) -> bool:
    """Return whether an input of a captured graph stays the same from call to call: a parameter, a buffer, a number."""
    import torch

    known = node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
    return known is not None or is_number(node) or isinstance(node.meta.get(EXAMPLE), torch.nn.Parameter)


def is_number(node: Node) -> bool:
    """Return whether an input of a captured graph is a Python number, which Dynamo hands over as a tensor."""
    return bool(getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False))


def placeholders(graph: GraphModule) -> list[Node]:
    """Return the inputs of ``graph``, in order."""
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def open_axes(graph: GraphModule, weights: Sequence[int]) -> dict[int, list[int]]:
    """Return the axes with open sizes by the number of the input."""
    from torch.fx.experimental.symbolic_shapes import is_concrete_int

    shapes = {number: getattr(node.meta[EXAMPLE], "shape", ()) for number, node in enumerate(placeholders(graph))}
    return {
        number: [axis for axis, size in enumerate(shape) if not is_concrete_int(size)]
        for number, shape in shapes.items()
        if number not in weights
    }


def reduced_graph(graph: GraphModule, outputs: Sequence[int]) -> GraphModule:
    """Return ``graph`` with these of its outputs and what they need; inputs and weights are shared."""
    import torch

    new = torch.fx.Graph()
    values: Any = new.graph_copy(graph.graph, {})
    new.output(tuple(values[number] for number in outputs))
    new.eliminate_dead_code()
    return torch.fx.GraphModule(graph, new)


def bound_graph(
    graph: GraphModule, arguments: Sequence[Any], weights: Sequence[int], outputs: Sequence[int]
) -> GraphModule:
    """Return ``graph`` with its weights as constants and its sizes read from its tensors, for the exporter.

    Raises:
        ModelError: if a size is that of no tensor.
    """
    import torch

    bound = reduced_graph(graph, outputs)
    nodes, examples = placeholders(bound), [node.meta[EXAMPLE] for node in placeholders(graph)]
    after = next(node for node in bound.graph.nodes if node.op != "placeholder")
    for number, (node, example) in enumerate(zip(nodes, examples, strict=True)):
        with bound.graph.inserting_before(after):
            if number in weights:
                if arguments[number].dim() == 0:
                    _replace_items(node, arguments[number].item())
                bound.register_buffer(f"weight_{number}", arguments[number].detach())
                constant = bound.graph.get_attr(f"weight_{number}")
            elif isinstance(example, torch.Tensor):
                node.target = input_name(number)
                continue
            elif node.users:
                place, axis = _axis_of(example, examples, weights)
                constant = bound.graph.call_function(torch.ops.aten.sym_size.int, (nodes[place], axis))
            node.replace_all_uses_with(constant if node.users else node)
        bound.graph.erase_node(node)
    for node in bound.graph.nodes:
        node.meta = {}  # fake tensors of another tracing, and the user's paths
    bound.recompile()
    return bound


def _replace_items(node: Node, value: float) -> None:
    """Replace ``node.item()`` by ``value``."""
    from torch.fx.node import map_arg

    for item in [user for user in node.users if user.op == "call_method" and user.target == "item"]:
        for user in list(item.users):
            user.args = map_arg(user.args, lambda operand, item=item: value if operand is item else operand)
            user.kwargs = map_arg(user.kwargs, lambda operand, item=item: value if operand is item else operand)
        node.graph.erase_node(item)


def _axis_of(size: Any, examples: Sequence[Any], weights: Sequence[int]) -> tuple[int, int]:
    """The number of an input and its axis of this size.

    Raises:
        ModelError: if there is none.
    """
    for number, example in enumerate(examples):
        if number not in weights:
            for axis, other in enumerate(getattr(example, "shape", ())):
                if str(other) == str(size):
                    return number, axis
    raise ModelError("an input is a number that changes from call to call; give it as a tensor")


def input_name(number: int) -> str:
    """Return the name of an input in the ONNX file."""
    return f"input_{number}"


class GraphFiles:
    """The folder of a graph, named by the hash of its code, its weights, the options, the machine and the versions.

    Args:
        arguments: of a call.
        weights: numbers of the arguments that are weights.
        options: of the run.

    Attributes:
        inputs: name of an input in the ONNX file → its number among the arguments.
    """

    def __init__(self, graph: GraphModule, arguments: Sequence[Any], weights: Sequence[int], options: Options) -> None:
        import torch

        self._arguments = arguments
        tensors = [number for number, value in enumerate(arguments) if isinstance(value, torch.Tensor)]
        self.inputs = {input_name(number): number for number in tensors if number not in weights}
        self._folder = private_folder(cache_folder() / FOLDER) / _key(graph, arguments, weights, options)

    @property
    def model(self) -> Path:
        """The path of the ONNX file."""
        return self._folder / "graph.onnx"

    @property
    def artifact(self) -> Path:
        """The path of the artifact."""
        return self._folder / "graph.tuned"

    def write(self, bound: GraphModule, axes: Mapping[int, Sequence[int]]) -> None:
        """Write the ONNX file of ``bound`` unless it is there.

        Args:
            axes: number of an input → its axes with open sizes.
        """
        import torch

        if self.model.is_file():
            return
        inputs = tuple(self._arguments[number] for number in self.inputs.values())
        shapes = tuple(dict.fromkeys(axes[number], torch.export.Dim.AUTO) for number in self.inputs.values())
        with quiet():
            program = torch.export.export(bound, inputs, dynamic_shapes=shapes, strict=False)
            private_folder(self._folder)
            write_onnx(program, self.model)
        prune(self._folder.parent)

    def resized(
        self, shapes: Mapping[str, tuple[int, ...]], axes: Mapping[int, Sequence[int]], size: Callable[[int], int]
    ) -> dict[str, tuple[int, ...]]:
        """Return ``shapes`` with every open size replaced by what ``size`` makes of it."""
        return {
            name: tuple(
                size(extent) if axis in axes[self.inputs[name]] else extent for axis, extent in enumerate(shapes[name])
            )
            for name in shapes
        }


def _key(graph: GraphModule, arguments: Sequence[Any], weights: Sequence[int], options: Options) -> str:
    """The name of the folder.

    Raises:
        ModelError: if the graph calls functions whose code is not told by PyTorch's version.
    """
    import torch

    digest = hashlib.sha256()
    specs = [
        (str(getattr(value, "dtype", "")), str(getattr(node.meta[EXAMPLE], "shape", "")))
        for value, node in zip(arguments, placeholders(graph), strict=True)
    ]
    target = host_target(options.threads, options.isa).fingerprint
    parts = [specs, list(weights), repr(options), target, torch.__version__, installed(DISTRIBUTION)]
    digest.update(json.dumps(parts).encode())
    for module in graph.modules():
        digest.update((module.code if isinstance(module, torch.fx.GraphModule) else repr(module)).encode())
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.op == "call_function" and not _is_known(node.target):
                raise ModelError(f"it calls {node.target}, which is not PyTorch's")
            if node.op == "get_attr" and isinstance(value := _attribute(module, node.target), torch.Tensor):
                _add(digest, value)
    for value in [*(arguments[number] for number in weights), *graph.state_dict().values()]:
        _add(digest, value)
    return digest.hexdigest()


def _add(digest: Any, tensor: Any) -> None:
    """Add a tensor's type, shape and values to a hash."""
    array = numpy_of(tensor)
    digest.update(f"{array.dtype}{array.shape}".encode())
    digest.update(array.reshape(-1).view(np.uint8).data)


def _attribute(module: Any, path: Any) -> Any:
    for name in str(path).split("."):
        module = getattr(module, name)
    return module


def _is_known(target: Any) -> bool:
    """Return whether a function is PyTorch's or Python's own."""
    return inspect.isbuiltin(target) or (getattr(target, "__module__", None) or "").split(".")[0] in KNOWN
