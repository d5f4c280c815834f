"""Caches of keys and values: which inputs and outputs of a decoder they are, and attention that writes them in place.

Exporters write a cache as an input and an output: ``present`` is ``past`` with what this call adds. Here both become
one buffer of a fixed capacity that the kernel of attention writes into (``schedules/templates/by_hand/attention.py``).
An input of ours, ``LENGTHS``, says how many positions of it are in use.

Notation: s new positions, t positions of ``past`` as the model was given it, c capacity of the buffer.

    concat   present = Concat(past, new): c = t + s. Of the mask, columns 0 … t belong to past, the rest to what is new
    scatter  present = ScatterElements(past, …, new): c = t. Columns of the mask are positions
    group    onnxruntime's GroupQueryAttention: c = t + s; it has no mask, positions are counted
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from autotune.frame.noise import noise_of
from autotune.importer.onnx_model.graph_edits import drop_unused, keep_only
from autotune.importer.onnx_model.graph_walk import attributes_of
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import ATTENTION, LENGTHS, OWN_DOMAIN, infer_shapes, true_inputs
from autotune.importer.rewriting.step import AttentionStep, Scores
from autotune.interface import Cache
from schedules.vocabulary.errors import UnsupportedError

CONCAT, SCATTER, GROUP = "concat", "scatter", "group"


def caches_of(model: ModelProto) -> tuple[Cache, ...]:
    """The pairs of past and present in the main graph; none where the model keeps no cache that is known here."""
    inputs = {value.name: number for number, value in enumerate(true_inputs(model.graph))}
    outputs = {value.name: number for number, value in enumerate(model.graph.output)}
    aliases = {node.input[0]: node.output[0] for node in model.graph.node if node.op_type == "Identity"}
    caches = []
    for node in model.graph.node:
        for kind, past, present in _pairs(node):
            present = present if present in outputs else aliases.get(present, "")
            if past in inputs and present in outputs:
                caches.append(Cache(inputs[past], outputs[present], kind))
    return tuple(caches)


def _pairs(node: NodeProto) -> list[tuple[str, str, str]]:
    """(kind, past, present) of what a node may append to."""
    if node.op_type == "Concat" and len(node.input) == 2 and attributes_of(node).get("axis") in (2, -2):
        return [(CONCAT, str(node.input[0]), str(node.output[0]))]
    if node.op_type == "ScatterElements" and attributes_of(node).get("axis", 0) in (2, -2):
        return [(SCATTER, str(node.input[0]), str(node.output[0]))]
    if node.op_type == "GroupQueryAttention" and len(node.input) > 4 and len(node.output) > 2:
        return [(GROUP, str(node.input[3 + index]), str(node.output[1 + index])) for index in range(2)]
    return []


def add_lengths(model: ModelProto) -> tuple[Cache, ...]:
    """Give a model with caches the input ``LENGTHS``, in place; its caches.

    Args:
        model: with static shapes.

    Raises:
        UnsupportedError: if it has no caches, or some that are not fp32.
    """
    caches = caches_of(model)
    inputs = true_inputs(model.graph)
    if not caches:
        names = ", ".join(value.name for value in inputs)
        raise UnsupportedError(
            f"{model.graph.name or 'the model'} keeps no cache that is known: no input is joined to new keys or values "
            f"and given back (inputs: {names}); leave --generate out, or export it with past key values"
        )
    drawn = next((value.name for value in inputs if noise_of(value.name) is not None), None)
    if drawn is not None:
        raise UnsupportedError(
            f"{model.graph.name or 'the model'} draws random numbers ({drawn}), which caches written in place do not "
            "allow yet; leave --generate out, or choose tokens outside the model"
        )
    for cache in caches:
        if inputs[cache.past].type.tensor_type.elem_type != TensorProto.FLOAT:
            raise UnsupportedError(
                f"cache {inputs[cache.past].name!r} is not of 32-bit floats; export the model with a cache in fp32"
            )
    model.opset_import.append(helper.make_opsetid(OWN_DOMAIN, 1))
    batch = inputs[caches[0].past].type.tensor_type.shape.dim[0].dim_value
    model.graph.input.append(helper.make_tensor_value_info(LENGTHS, TensorProto.INT32, [batch]))
    return caches


def bind_caches(model: ModelProto, caches: Sequence[Cache]) -> tuple[Cache, ...]:
    """Let attention write its caches in place, in a simplified model, in place; the caches with their capacities.

    Args:
        model: with ``LENGTHS``; GroupQueryAttention is ``ATTENTION`` already.

    Raises:
        UnsupportedError: naming a cache that something else reads, too.
    """
    if any(cache.kind != GROUP for cache in caches):
        _Attention(model, caches).run()
    graph = model.graph
    inputs, outputs = [value.name for value in graph.input], [value.name for value in graph.output]
    names = {inputs[cache.past]: cache for cache in caches}
    presents = {outputs[cache.present] for cache in caches}
    capacity: dict[str, int] = {}
    new = {n.input[3 + i]: n.input[1 + i] for n in graph.node if n.op_type == ATTENTION for i in range(2)}
    scope = Scope(model)
    for value in graph.input:
        if value.name in names:
            extent = value.type.tensor_type.shape.dim[2]
            extent.dim_value += 0 if names[value.name].kind == SCATTER else scope.shapes[new[value.name]][2]
            capacity[value.name] = extent.dim_value
    keep_only(graph.output, lambda value: value.name not in presents)
    for node in graph.node:
        if node.op_type == ATTENTION:
            del node.output[1:]  # what were the presents
    drop_unused(graph)
    infer_shapes(model)
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in names and (node.op_type, place) not in ((ATTENTION, 3), (ATTENTION, 4)):
                raise UnsupportedError(f"cache {name!r} is also read by {node.op_type} (node {node.name!r}){ADVICE}")
    return tuple(replace(cache, capacity=capacity[inputs[cache.past]]) for cache in caches)


ADVICE = "; leave --generate out: without it the cache is copied by every call"


class _Attention(AttentionStep):
    """Softmax(scale · q·kᵀ + mask) · v over a cache, as one operator."""

    def __init__(self, model: ModelProto, caches: Sequence[Cache]) -> None:
        super().__init__(model)
        self._caches = {model.graph.output[cache.present].name: cache for cache in caches}

    def replaced(self, node: NodeProto) -> bool:
        """Append attention over a cache in the place of weights · values."""
        softmax = self._through(node.input[0], ("Identity", "Cast")) if node.op_type == "MatMul" else None
        scores = self.scores(softmax.input[0]) if softmax is not None and softmax.op_type == "Softmax" else None
        key, value = (None, None) if scores is None else map(self._cache, (scores.keys, str(node.input[1])))
        if scores is None or key is None or value is None:
            return False
        self._attend(node, scores, (key, value))
        return True

    def _attend(self, product: NodeProto, scores: Scores, presents: tuple[str, str]) -> None:
        cache = self._caches[presents[0]]
        updates = [self.makers[name].input[1 if cache.kind == CONCAT else 2] for name in presents]
        pasts = [self.makers[name].input[0] for name in presents]
        shape, past = self.scope.shapes[scores.query], self.scope.shapes[pasts[0]]
        length, out, new_at = shape[2], product.output[0], past[2] if cache.kind == CONCAT else -1
        total = past[2] + (length if cache.kind == CONCAT else 0)
        mask = ""
        for name in scores.masks:
            mask = self.op("Add", mask, name) if mask else name
        if mask:
            extents = np.broadcast_shapes(*(self.scope.shapes[name] for name in scores.masks))
            extents = (1,) * (4 - len(extents)) + tuple(extents)
            if extents[3] != total:
                raise UnsupportedError(f"a mask of shape {list(extents)} does not go with {total} positions{ADVICE}")
            mask = self.reshape(mask, *extents)
        elif length > 1:
            raise UnsupportedError(f"attention (node {product.name!r}) has no mask that hides later positions{ADVICE}")
        inputs = [scores.query, *updates, *pasts, LENGTHS, *([mask] if mask else [])]
        outputs = [out, self.fresh(), self.fresh()]
        self.nodes.append(
            helper.make_node(ATTENTION, inputs, outputs, out, domain=OWN_DOMAIN, scale=scores.scale, new_at=new_at)
        )
        for name, sizes in zip(outputs, (shape, *[(*past[:2], total, past[3])] * 2), strict=True):
            if name not in self.scope.shapes:
                self.declare(name, sizes, TensorProto.FLOAT)

    def _cache(self, name: str) -> str | None:
        """The present that ``name`` is, perhaps turned, or repeated for the heads of each group."""
        for _ in range(8):
            if name in self._caches:
                return name
            node = self.makers.get(name)
            if node is None:
                return None
            if (
                node.op_type == "Transpose" and list(attributes_of(node).get("perm", ())) == [0, 1, 3, 2]
            ) or node.op_type in ("Identity", "Cast"):
                name = node.input[0]
            elif node.op_type == "Reshape":
                inner = self._repeated(node)
                if not inner:
                    return None
                name = inner
            else:
                return None
        return None

    def _repeated(self, reshape: NodeProto) -> str:
        """Return the input of ``repeat_kv``: (b, g, t, d) → (b, g, 1, t, d) → (b, g, n, t, d) → (b, g · n, t, d)."""
        expand = self.makers.get(reshape.input[0])
        shapes = self.scope.shapes
        if expand is None or expand.op_type not in ("Expand", "Tile", "Concat"):
            return ""
        insert = self.makers.get(expand.input[0])
        if insert is None or insert.op_type not in ("Unsqueeze", "Reshape"):
            return ""
        known = [shapes.get(name) for name in (insert.input[0], insert.output[0], expand.output[0], reshape.output[0])]
        if any(shape is None for shape in known):
            return ""
        small, open_, wide, flat = (tuple(shape or ()) for shape in known)
        if len(small) != 4 or len(wide) != 5 or len(flat) != 4:
            return ""
        b, g, t, d = small
        fits = open_ == (b, g, 1, t, d) and wide[:2] == (b, g) and wide[3:] == (t, d) and flat == (b, g * wide[2], t, d)
        return str(insert.input[0]) if fits else ""

    def _through(self, name: str, kinds: Sequence[str]) -> NodeProto | None:
        """Return the node that makes ``name``, behind operators that change nothing."""
        node = self.makers.get(name)
        while node is not None and node.op_type in kinds:
            node = self.makers.get(node.input[0])
        return node
