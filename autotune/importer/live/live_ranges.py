"""Only what counts of a call decides its results, if the set of shapes is larger than the call.

What stands behind the end of a padded call would change many results: convolutions and pools read it beside the last
positions, norms and means take it for numbers, a recurrent layer that walks backwards begins there. Each of these
operators gets numbers that do no harm in its place: zeros for sums, the least number for a maximum. Means are divided
by how many numbers count.

``DynamicQuantizeLinear`` takes its scale from all numbers of a tensor. With the numbers of the first position in the
place of those that do not count, the range is the call's own, and NaN stays NaN. Rows that do not count are still
quantised, so that kernels may leave them out.

Which positions count is an input of booleans for each open size (``frame/noise.py``), which a session fills with ones
and pads with zeros as it does every other input. Zeros are put where a value is made, so that they become part of the
kernel that makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from onnx import ModelProto, NodeProto, TensorProto, helper

from autotune.frame.noise import live_name
from autotune.importer.live.live_axes import Axes
from autotune.importer.live.live_edits import EDITS, WITHOUT_MASKS, Edit
from autotune.importer.live.live_masks import Masks
from autotune.importer.live.live_reads import neutral, reads_beside
from autotune.importer.onnx_model.graph_edits import constants_to_initialisers, replace_nodes
from autotune.importer.onnx_model.graph_walk import name_nodes
from autotune.importer.onnx_model.open_axes import looks_beside
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS, infer_shapes
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import replacement


def mask_positions(model: ModelProto, live: Mapping[str, int], axes: Mapping[str, Axes]) -> None:
    """Let only what counts decide the results of ``model``, in place.

    Args:
        model: flattened, its shapes inferred.
        live: the open sizes of the set of shapes.
        axes: of values, as ``followed_axes`` finds them; what reads others stays as it is.

    Raises:
        ModelError: as ``infer_shapes``.
    """
    graph = model.graph
    graph.input.extend(
        helper.make_tensor_value_info(live_name(symbol), TensorProto.BOOL, [size]) for symbol, size in live.items()
    )
    constants_to_initialisers(graph)
    scope, masks = Scope(model), Masks(live, axes)
    cleared = _Cleared(masks)
    makers = {name: node for node in graph.node for name in node.output}
    # A model of sequences alone has a mask of its own, or its length is not padded.
    every = looks_beside(graph.node)
    for proto in graph.node if every else ():
        cleared.note(Node(proto, scope), makers)
    kept = cleared.of_inputs(scope)
    for proto in [*graph.node]:
        edit = EDITS.get(proto.op_type) if every or proto.op_type in WITHOUT_MASKS else None
        for node in _edited(proto, edit, scope, masks):
            cleared.rename(node)
            kept += [node, *cleared.behind(node, scope)]
    replace_nodes(graph, kept)
    name_nodes(graph.node)
    infer_shapes(model, graph.name or "model")


@dataclass
class _Cleared:
    """The values that become a number where they do not count, as soon as they are made.

    Attributes:
        wanted: value → the axes behind whose end it stands, and the number.
        renamed: input of the model → what is read in its place.
    """

    masks: Masks
    wanted: dict[str, tuple[set[int], ArrayLike]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def note(self, node: Node, makers: Mapping[str, NodeProto]) -> None:
        """Note what the operator ``node`` reads beside what counts, as sums and products do."""
        reads = reads_beside(node, self.masks)
        if reads:
            self._want(node.input(0), set(reads), neutral(node), makers)

    def _want(self, name: str, axes: set[int], number: ArrayLike, makers: Mapping[str, NodeProto]) -> None:
        maker = makers.get(name)
        if maker is not None and maker.op_type == "Concat":
            parts = [part for part in maker.input if self.masks.open_axes(part, axes) == sorted(axes)]
            if len(parts) == len(maker.input):
                for part in parts:
                    self._want(part, axes, number, makers)
                return
        if maker is not None and maker.op_type == "DequantizeLinear":  # before it is quantised: zero stays zero
            quantiser = makers.get(maker.input[0])
            source = quantiser.input[0] if quantiser is not None and quantiser.op_type == "QuantizeLinear" else ""
            if self.masks.open_axes(source, axes) == sorted(axes):
                self._want(source, axes, number, makers)
                return
        known = self.wanted.setdefault(name, (set(), number))
        known[0].update(axes)

    def rename(self, node: NodeProto) -> None:
        """Let ``node`` read cleared inputs of the model, in place."""
        for index, name in enumerate(node.input):
            node.input[index] = self.renamed.get(name, name)

    def behind(self, maker: NodeProto, scope: Scope) -> list[NodeProto]:
        """The nodes that clear what ``maker`` makes, which has another name from now on."""
        nodes = []
        for index, name in enumerate(maker.output):
            if name in self.wanted:
                maker.output[index] = scope.names.new(f"{name}/all")
                nodes += self._clear(name, maker.output[index], name, scope)
        return nodes

    def of_inputs(self, scope: Scope) -> list[NodeProto]:
        """The nodes that clear inputs of the model."""
        nodes = []
        for value in scope.graph.input:
            if value.name in self.wanted:
                self.renamed[value.name] = scope.names.new(f"{value.name}/counted")
                nodes += self._clear(value.name, value.name, self.renamed[value.name], scope)
        return nodes

    def _clear(self, name: str, source: str, result: str, scope: Scope) -> list[NodeProto]:
        axes, number = self.wanted[name]
        e = Emit(Node(helper.make_node("Where", [source], [result]), scope))
        mask = self.masks.mask(e, self.masks.axes[name], sorted(axes))
        fill = e.const(np.asarray(number, helper.tensor_dtype_to_np_dtype(scope.types[name])))
        return [*e.nodes, helper.make_node("Where", [mask, source, fill], [result], result)]


def _edited(proto: NodeProto, edit: Edit | None, scope: Scope, masks: Masks) -> list[NodeProto]:
    """The nodes that take the place of one; itself where nothing needs to."""
    if edit is None or proto.domain not in STANDARD_DOMAINS:
        return [proto]
    nodes = replacement(lambda node, e: edit(node, e, masks), proto, scope)
    return [proto] if nodes is None else nodes
