"""Attention in one kernel: over a cache that is written in place (``by_hand/attention.py``), and without a cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from autotune.importer.onnx_model.shapes import ATTENTION, PLAIN_ATTENTION
from autotune.importer.rewriting.registry import Inputs, converts
from autotune.importer.rewriting.relax_values import dtype_of, kernel_call, sizes_of
from schedules.templates.by_hand.attention import cached_attention
from schedules.templates.by_hand.attention_shape import LANES, AttentionShape
from schedules.templates.by_hand.plain_attention import PlainShape, plain_attention
from schedules.vocabulary.errors import ModelError


@converts(ATTENTION)
def attention(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
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
