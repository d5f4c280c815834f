"""ONNX Runtime's attention operators as products, softmaxes and masks.

Shapes: queries (batch, heads, length, size), keys and values (batch, heads, total, size), where total counts what is
kept of earlier calls too; a mask is added to the scores (batch, heads, length, total) and broadcasts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto
from tvm import relax

from autotune.importer.onnx_model.shapes import ATTENTION, LENGTHS, MICROSOFT, OWN_DOMAIN, PLAIN_ATTENTION
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import Inputs, converts, rewrites
from autotune.importer.rewriting.relax_values import dtype_of, kernel_call, sizes_of
from schedules.templates.by_hand.attention import cached_attention
from schedules.templates.by_hand.attention_shape import LANES, AttentionShape
from schedules.templates.by_hand.plain_attention import PlainShape, plain_attention
from schedules.vocabulary.errors import ModelError

INT32 = TensorProto.INT32

BIAS, SINKS = 10, 11
"""Inputs of GroupQueryAttention: numbers added to the scores, and one more score of each head."""


def _split_heads(e: Emit, x: str, shape: tuple[int, ...], heads: int) -> str:
    """(batch, length, heads · size) → (batch, heads, length, size)."""
    batch, length, hidden = shape
    return e.transpose(e.reshape(x, batch, length, heads, hidden // heads), 0, 2, 1, 3)


def _attended(node: Node, e: Emit, q: str, k: str, v: str, scale: float, masks: list[str]) -> str:
    """Softmax(scale · q·kᵀ + masks) · v, its heads side by side: (batch, length, heads · size)."""
    scores = e.op("Mul", e.op("MatMul", q, e.transpose(k, 0, 1, 3, 2)), e.like(scale))
    for mask in masks:
        scores = e.op("Add", scores, mask)
    attended = e.op("MatMul", e.op("Softmax", scores, axis=-1), v)
    batch, length = node.shape(0)[:2]
    return e.reshape(e.transpose(attended, 0, 2, 1, 3), batch, length, -1)


def _causal(node: Node, e: Emit, length: int, total: int) -> str:
    """The mask that hides what comes later."""
    hidden = np.tri(length, total, total - length) == 0
    kind = node.dtype(0)
    least = np.finfo(kind if kind.kind == "f" else np.float32).min
    return e.const(np.where(hidden, least, 0).astype(kind)[None, None])


def _padding(node: Node, e: Emit, index: int, length: int, total: int) -> str:
    """The mask of input ``index``: lengths, lengths and first positions, or a flag for every key or score.

    Lengths may be followed by where the sequences begin, one behind the other, which a CPU has no use for.
    """
    shape, batch = node.shape(index), node.shape(0)[0]
    mask = e.cast(node.input(index), INT32) if node.type(index) != INT32 else node.input(index)
    if shape in ((batch,), (2 * batch,), (3 * batch + 2,)):
        positions = e.const(np.arange(total, dtype=np.int32).reshape(1, 1, 1, total))
        ends = e.reshape(e.slice(mask, 0, 0, batch), batch, 1, 1, 1)
        used = e.op("Less", positions, ends)
        if shape[0] == 2 * batch:
            starts = e.reshape(e.slice(mask, 0, batch, 2 * batch), batch, 1, 1, 1)
            used = e.op("And", used, e.op("Less", e.op("Sub", starts, e.const(np.int32(1))), positions))
    elif shape in ((batch, total), (1, total)):
        used = e.op("Greater", e.reshape(mask, shape[0], 1, 1, total), e.const(np.int32(0)))
    elif shape == (batch, length, total):
        used = e.op("Greater", e.reshape(mask, batch, 1, length, total), e.const(np.int32(0)))
    else:
        raise node.refused(f"its mask of shape {list(shape)} does not go with {batch} × {length} × {total} scores")
    return e.op("Where", used, e.like(0), e.like(float(node.attr("mask_filter_value", -10000.0))))


def _refuse(node: Node, *, attributes: tuple[str, ...] = (), inputs: tuple[tuple[int, str], ...] = ()) -> None:
    for name in attributes:
        if node.attr(name, 0):
            raise node.refused(f"its attribute {name} is not supported")
    for index, name in inputs:
        if node.input(index):
            raise node.refused(f"its input {name} is not supported")


@rewrites("Attention", domain=MICROSOFT)
def attention(node: Node, e: Emit) -> list[str] | None:
    """One product for queries, keys and values, then attention; output 1 is keys and values, earlier ones first."""
    _refuse(node, attributes=("do_rotary", "past_present_share_buffer"), inputs=((6, "past_sequence_length"),))
    heads = _heads(node, "num_heads")
    batch, length = node.shape(0)[:2]
    declared = node.attr("qkv_hidden_sizes")
    sizes = [int(size) for size in declared] if declared else [node.shape(1)[1] // 3] * 3
    product = e.op("MatMul", node.input(0), node.input(1))
    product = e.op("Add", product, node.input(2)) if node.input(2) else product
    parts = zip(e.split(product, sizes, 2), sizes, strict=True)
    q, k, v = (_split_heads(e, part, (batch, length, size), heads) for part, size in parts)
    if node.input(4):
        past = node.shape(4)
        k, v = (
            e.concat([e.reshape(e.slice(node.input(4), 0, index, index + 1), *past[1:]), own], 2)
            for index, own in enumerate((k, v))
        )
    total = length + (node.shape(4)[3] if node.input(4) else 0)
    outputs = [_attended(node, e, q, k, v, _scale(node, sizes[0] // heads), _masks(node, e, (3, 5), length, total))]
    if node.wants(1):
        if sizes[1] != sizes[2]:
            raise node.refused("keys and values of different sizes do not go into one output")
        outputs.append(e.concat([e.reshape(x, 1, batch, heads, total, sizes[1] // heads) for x in (k, v)], 0))
    return outputs


@rewrites("QAttention", domain=MICROSOFT)
def qattention(node: Node, e: Emit) -> list[str] | None:
    """Attention of what 8-bit tokens (inputs 0, 3, 6) and weights (1, 4, 7) stand for: values, scales, zero points.

    Earlier keys and values (input 8) and output 1 are numbers, as in Attention.
    """
    numbers, columns = ([node.input(index) for index in places if node.input(index)] for places in ((3, 6), (4, 7)))
    x = e.op("DequantizeLinear", node.input(0), *(e.reshape(name) for name in numbers))
    if np.prod(node.shape(4)) == 1:
        w = e.op("DequantizeLinear", node.input(1), *(e.reshape(name) for name in columns))
    else:
        w = e.op("DequantizeLinear", node.input(1), *columns, axis=1)
    names = ("num_heads", "unidirectional", "scale", "mask_filter_value", "do_rotary", "past_present_share_buffer")
    inputs, outputs = (x, w, *map(node.input, (2, 5, 8))), 2 if node.wants(1) else 1
    return e.ops("Attention", *inputs, outputs=outputs, domain=MICROSOFT, **node.given(*names))


def _heads(node: Node, name: str) -> int:
    heads = int(node.attr(name, 0))
    if heads < 1:
        raise node.refused(f"its attribute {name} is {heads}; it must be at least 1")
    return heads


def _scale(node: Node, size: int) -> float:
    """Return the factor of the scores; ONNX Runtime takes 0 for unset."""
    return float(node.attr("scale", 0.0)) or size**-0.5


def _masks(node: Node, e: Emit, places: tuple[int, int], length: int, total: int) -> list[str]:
    """Everything that is added to the scores: padding (input ``places[0]``), what comes later, a bias."""
    masks = [_padding(node, e, places[0], length, total)] if node.input(places[0]) else []
    if node.attr("unidirectional", 0):
        masks.append(_causal(node, e, length, total))
    return masks + [node.input(places[1])] * bool(node.input(places[1]))


@rewrites("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(node: Node, e: Emit) -> list[str] | None:
    """Attention of queries, keys and values; outputs 1 and 2 are keys and values, earlier ones first."""
    _refuse(node, inputs=((8, "past_sequence_length"), (9, "cache_indirection")))
    if node.wants(3):
        raise node.refused("its output qk is not supported")
    if len(node.shape(0)) != 3 or not node.input(2):
        raise node.refused("packed queries, keys and values are not supported")
    heads, (batch, length, hidden) = _heads(node, "num_heads"), node.shape(0)

    def biased(x: str, start: int, width: int) -> str:
        if not node.input(3):
            return x
        part = e.slice(node.input(3), 0, start, start + width)
        return e.op("Add", x, e.reshape(part, 1, heads, 1, width // heads))

    q = biased(_split_heads(e, node.input(0), (batch, length, hidden), heads), 0, hidden)
    k, v, shape = node.input(1), node.input(2), node.shape(1)
    if len(shape) == 4:  # projected before, with their biases
        own = shape[2]
    else:
        own, width = shape[1], node.shape(2)[2]
        k = biased(_split_heads(e, k, (batch, own, shape[2]), heads), hidden, hidden)
        v = biased(_split_heads(e, v, (batch, own, width), heads), 2 * hidden, width)
    past = node.shape(6)[2] if node.input(6) else 0
    if past:
        k, v = e.concat([node.input(6), k], 2), e.concat([node.input(7), v], 2)
    masks = _masks(node, e, (4, 5), length, past + own)
    attended = _attended(node, e, q, k, v, _scale(node, hidden // heads), masks)
    return [attended, k, v]


@rewrites("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(node: Node, e: Emit) -> list[str] | None:
    """Pairs of elements turned by an angle of their position; heads before or behind the length, or unsplit."""
    _refuse(node, attributes=("is_packed_batching",))
    shape, places = node.shape(0), node.shape(1)
    width = int(node.attr("rotary_embedding_dim", 0)) or 2 * node.shape(2)[1]
    x, behind = node.input(0), len(shape) == 4
    length = shape[2] if behind else shape[1]
    if not behind:
        heads = int(node.attr("num_heads", 0)) or shape[2] // (2 * node.shape(2)[1])
        x = e.reshape(x, *shape[:2], heads, shape[2] // heads)
    positions = node.input(1)
    if places in ((), (1,)) and (shape[0], length) != (1, 1):  # the first one's
        steps = e.const(np.arange(length, dtype=np.int64).reshape(1, length))
        positions = e.op("Add", e.reshape(positions, 1, 1), steps)
    else:
        positions = e.reshape(positions, shape[0], length)
    size = shape[3] if behind else shape[2] // heads
    angles = _angles(node, e, (2, 3), positions, width // 2, 1 if behind else 2)
    return [e.reshape(_rotated(e, x, angles, size, bool(node.attr("interleaved", 0))), *shape)]


def _angles(
    node: Node, e: Emit, tables: tuple[int, int], positions: str, half: int, head_axis: int
) -> tuple[str, str, int]:
    """Cosines and sines (inputs ``tables``) at ``positions`` (batch or 1, length), to go with heads; and how many."""
    shape = (0, 1, -1, half) if head_axis == 1 else (0, -1, 1, half)
    rows = (e.op("Gather", e.slice(node.input(index), 1, 0, half), positions, axis=0) for index in tables)
    cos, sin = (e.reshape(table, *shape) for table in rows)
    return cos, sin, half


def _rotated(e: Emit, x: str, angles: tuple[str, str, int], size: int, alternate: bool) -> str:
    """The first elements of every head of ``x`` (…, size) turned by ``angles``, the others as they are.

    Args:
        alternate: pairs are neighbours; else each half of what is turned has one of every pair.
    """
    cos, sin, half = angles
    if alternate:
        first, second = e.slice(x, 3, 0, 2 * half, 2), e.slice(x, 3, 1, 2 * half, 2)
    else:
        first, second = e.slice(x, 3, 0, half), e.slice(x, 3, half, 2 * half)
    turned = [
        e.op("Sub", e.op("Mul", first, cos), e.op("Mul", second, sin)),
        e.op("Add", e.op("Mul", first, sin), e.op("Mul", second, cos)),
    ]
    if alternate:
        rotated = e.reshape(e.concat([e.reshape(part, 0, 0, 0, half, 1) for part in turned], 4), 0, 0, 0, 2 * half)
    else:
        rotated = e.concat(turned, 3)
    return e.concat([rotated, e.slice(x, 3, 2 * half, size)], 3) if size > 2 * half else rotated


@rewrites("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(node: Node, e: Emit) -> list[str] | None:
    """Causal attention whose keys and values serve a group of query heads each, with their cache as outputs 1 and 2.

    The number of positions (input 6) must be constant, because the size of the cache depends on it; how many of them
    each of the batch uses (input 5) need not be.
    """
    _refuse(
        node,
        attributes=("qk_output", "sliding_window_cache", "kv_cache_bit_width"),
        inputs=((14, "q_norm_weight"), (15, "k_norm_weight")),
    )
    if node.attr("causal", 1) != 1 or {node.attr(f"{name}_quant_type", "NONE") for name in "kv"} != {"NONE"}:
        raise node.refused("only causal attention with a cache that is not quantised is supported")
    heads, groups = _heads(node, "num_heads"), _heads(node, "kv_num_heads")
    batch, length = node.shape(0)[:2]
    size = _size(node, heads, groups)
    if node.input(1):
        names = [node.input(index) for index in range(3)]
    else:
        names = e.split(node.input(0), [heads * size, groups * size, groups * size], 2)
    q, k, v = (
        e.reshape(name, batch, length, count, size) for name, count in zip(names, (heads, groups, groups), strict=True)
    )
    past = node.shape(3)[2] if node.input(3) else 0
    total = int(node.constant(6, "total_sequence_length").reshape(-1)[0]) if past else length
    bound = past and LENGTHS in node.scope.shapes
    before = e.reshape(LENGTHS, batch, 1) if bound else _before(node, e, batch, length, total)
    if node.attr("do_rotary", 0):
        counted = e.op("Add", before, e.const(np.arange(length, dtype=np.int32)[None])) if not node.input(9) else ""
        positions = node.input(9) or e.cast(counted, TensorProto.INT64)
        if bound:  # of padding behind a prompt, too: the tables may end before
            positions = e.op("Min", positions, e.const(np.int64(node.shape(7)[0] - 1)))
        angles = _angles(node, e, (7, 8), positions, node.shape(7)[1], 2)
        q, k = (_rotated(e, x, angles, size, bool(node.attr("rotary_interleaved", 0))) for x in (q, k))
    q, k, v = (e.transpose(x, 0, 2, 1, 3) for x in (q, k, v))
    if bound:
        _refuse(node, inputs=((BIAS, "attention_bias"),))
        if _has_sinks(node):
            raise node.refused("attention sinks and caches that are appended to in place do not go together")
        return _in_place(node, e, (q, k, v))
    extent = max(past, total)
    if past:
        k, v = (_cached(node, e, index, own, before, (past, extent)) for index, own in ((3, k), (4, v)))
    attended = _grouped(node, e, (q, k, v), before, (heads, groups, extent))
    return [attended, k, v]


def _in_place(node: Node, e: Emit, qkv: tuple[str, str, str]) -> list[str]:
    """Attention that appends to its caches in place (``autotune/importer/generation/caches.py``)."""
    q, k, v = qkv
    window = max(0, int(node.attr("local_window_size", -1)))
    heads, (batch, groups, past, size) = _heads(node, "num_heads"), node.shape(3)
    outputs = e.ops(
        ATTENTION,
        *(q, k, v, node.input(3), node.input(4), LENGTHS),
        outputs=3,
        domain=OWN_DOMAIN,
        scale=_scale(node, size),
        softcap=float(node.attr("softcap", 0.0)),
        window=window,
    )
    length = node.shape(0)[1]
    e.declare(outputs[0], (batch, heads, length, size), TensorProto.FLOAT)
    for name in outputs[1:]:
        e.declare(name, (batch, groups, past + length, size), TensorProto.FLOAT)
    return [e.reshape(e.transpose(outputs[0], 0, 2, 1, 3), batch, length, heads * size), *outputs[1:]]


def _before(node: Node, e: Emit, batch: int, length: int, total: int) -> str:
    """Return how many positions the cache holds already, of the batch or all alike, int32 (batch or 1, 1)."""
    if length == total:  # a prompt, whatever lies in the cache
        return e.const(np.zeros((1, 1), np.int32))
    return e.reshape(e.op("Add", node.input(5), e.const(np.int32(1 - length))), batch, 1)


def _cached(node: Node, e: Emit, index: int, own: str, before: str, extents: tuple[int, int]) -> str:
    """The cache of input ``index``, behind it ``own`` (batch, groups, length, size), then zeros."""
    shape, (past, extent) = node.shape(index), extents
    batch, groups, _, size = shape
    old = node.input(index)
    if extent > past:
        old = e.concat([old, e.const(np.zeros((batch, groups, extent - past, size), node.dtype(index)))], 2)
    length = node.shape(0)[1]
    offsets = e.op("Sub", e.const(np.arange(extent, dtype=np.int32)[None]), before)
    inside = e.op("Less", offsets, e.const(np.int32(length)))
    if length > 1:
        nearest = e.op("Min", e.op("Max", offsets, e.const(np.int32(0))), e.const(np.int32(length - 1)))
        nearest = e.op("Expand", e.reshape(nearest, -1, 1, extent, 1), e.ints(batch, groups, extent, size))
        own = e.op("GatherElements", own, nearest, axis=2)
    behind = e.op("Where", e.reshape(inside, -1, 1, extent, 1), own, e.like(0, index))
    is_old = e.op("Less", offsets, e.const(np.int32(0)))
    return e.op("Where", e.reshape(is_old, -1, 1, extent, 1), old, behind)


def _grouped(node: Node, e: Emit, qkv: tuple[str, str, str], before: str, counts: tuple[int, int, int]) -> str:
    """Attention of ``heads`` queries over ``groups`` keys of ``extent`` positions: (batch, length, heads · size)."""
    (q, k, v), (heads, groups, extent) = qkv, counts
    batch, length = node.shape(0)[:2]
    # The queries of a group lie one after the other, so one product serves them all.
    q = e.reshape(q, batch, groups, heads // groups * length, -1)
    scores = e.reshape(e.op("MatMul", q, e.transpose(k, 0, 1, 3, 2)), batch, heads, length, extent)
    scores = e.op("Mul", scores, e.like(_scale(node, _size(node, heads, groups))))
    softcap = float(node.attr("softcap", 0.0))
    if softcap:
        scores = e.op("Mul", e.op("Tanh", e.op("Div", scores, e.like(softcap))), e.like(softcap))
    at = e.reshape(e.op("Add", before, e.const(np.arange(length, dtype=np.int32)[None])), -1, 1, length, 1)
    positions = e.const(np.arange(extent, dtype=np.int32).reshape(1, 1, 1, extent))
    offsets = e.op("Sub", positions, at)
    seen = e.op("Less", offsets, e.const(np.int32(1)))
    if batch > 1 and length > 1:  # behind the end of a shorter prompt
        lasts = e.reshape(node.input(5), batch, 1, 1, 1)
        seen = e.op("And", seen, e.op("Less", e.op("Sub", positions, lasts), e.const(np.int32(1))))
    window = int(node.attr("local_window_size", -1))
    if window > 0:
        seen = e.op("And", seen, e.op("Less", e.const(np.int32(-window)), offsets))
    kind = node.dtype(0)
    least = np.finfo(kind if kind.kind == "f" else np.float32).min
    if node.input(BIAS):
        scores = e.op("Add", scores, _score_bias(node, e, extent))
    weights = _weights(node, e, e.op("Where", seen, scores, e.like(float(least))), counts)
    attended = e.op("MatMul", e.reshape(weights, batch, groups, heads // groups * length, extent), v)
    return e.reshape(e.transpose(e.reshape(attended, batch, heads, length, -1), 0, 2, 1, 3), batch, length, -1)


def _has_sinks(node: Node) -> bool:
    return bool(node.input(SINKS)) or node.attr("smooth_softmax", 0) == 1


def _weights(node: Node, e: Emit, scores: str, counts: tuple[int, int, int]) -> str:
    """Softmax of ``scores`` (batch, heads, length, extent).

    A head may have one more score, its sink, whose weight is left out: input ``SINKS``, or 0 for a smooth softmax.
    """
    (batch, length), (heads, _, extent) = node.shape(0)[:2], counts
    if not _has_sinks(node):
        return e.op("Softmax", scores, axis=-1)
    sinks = e.reshape(node.input(SINKS), 1, heads, 1, 1) if node.input(SINKS) else e.like(0)
    sinks = e.op("Expand", sinks, e.ints(batch, heads, length, 1))
    return e.slice(e.op("Softmax", e.concat([scores, sinks], 3), axis=-1), 3, 0, extent)


def _score_bias(node: Node, e: Emit, extent: int) -> str:
    """Input ``BIAS`` for the ``extent`` positions of the cache; no query sees those behind its end."""
    *outer, width = node.shape(BIAS)
    if width >= extent:
        return e.slice(node.input(BIAS), 3, 0, extent) if width > extent else node.input(BIAS)
    return e.concat([node.input(BIAS), e.const(np.zeros((*outer, extent - width), node.dtype(0)))], 3)


def _size(node: Node, heads: int, groups: int) -> int:
    """Elements of a head; queries, keys and values lie in one input if there is no second."""
    return node.shape(0)[2] // (heads if node.input(1) else heads + 2 * groups)


@converts(ATTENTION)
def attention_in_place(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """One kernel, which writes the new keys and values into the caches that it is given.

    Raises:
        ModelError: if the heads are no multiple of the kernel's lanes, or something is not fp32.
    """
    q, k, v, cache, mask = inputs[0], inputs[1], inputs[2], inputs[3], inputs[6]
    (batch, heads, length, size), (_, groups, capacity, _) = sizes_of(q), sizes_of(cache)
    if size % LANES:
        raise ModelError(f"heads of {size} elements; they must be a multiple of {LANES}")
    if any(dtype_of(value) != "float32" for value in (q, k, cache)):
        raise ModelError("queries, keys and caches must be fp32")
    extents = [1, 1, 1, 0] if mask is None else sizes_of(mask)
    shape = AttentionShape(
        batch,
        heads,
        groups,
        length,
        size,
        capacity,
        mask=(extents[0], extents[1], extents[2], extents[3]),
        new_at=int(attrs.get("new_at", -1)),
        scale=float(attrs.get("scale", 1.0)),
        window=int(attrs.get("window", 0)),
        softcap=float(attrs.get("softcap", 0.0)),
    )
    # One behind the other: both are written where the whole lies (``graph/flat.py``).
    new = bb.emit(relax.op.concat([bb.emit(relax.op.expand_dims(part, 0)) for part in (k, v)], 0))
    operands = [q, new, *inputs[3:6], _mask(mask)]
    return kernel_call(bb, cached_attention(shape), "attention", operands, sizes_of(q), "float32")


@converts(PLAIN_ATTENTION)
def plain(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """One kernel; who writes the operator has looked at sizes and types."""
    mask = inputs[3]
    q, k, v, out = (bool(flag) for flag in attrs["by_head"])
    (batch, *middle, size), keys, values = (sizes_of(value) for value in inputs[:3])
    heads, length = middle if q else middle[::-1]
    extents = [1, 1, 1, 0] if mask is None else sizes_of(mask)
    shape = PlainShape(
        batch,
        heads,
        length,
        keys[2 if k else 1],
        size,
        values[3],
        float(attrs["scale"]),
        (extents[0], extents[1], extents[2], extents[3]),
        (q, k, v, out),
        bool(attrs["chosen"]),
        bool(attrs["zero_unseen"]),
    )
    operands = [*inputs[:3], _mask(mask)]
    return kernel_call(bb, plain_attention(shape), "attention", operands, shape.tensor(3), "float32")


def _mask(mask: relax.Expr | None) -> relax.Expr:
    """``mask``, or what kernels without one take in its place."""
    return relax.const(np.zeros((1, 1, 1, 1), np.float32)) if mask is None else mask
