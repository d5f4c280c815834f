"""The fused operator that an encoder layer calls when no gradient is wanted, written out for the exporter.

The exporter has no translation of it. A mask is true, or not zero, where nothing is attended to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # optional, and slow to import
    import torch
    from torch.export import ExportedProgram

KEYS = 1
"""``mask_type`` of a mask of (rows, keys); others broadcast to (rows, heads, queries, keys)."""


def without_fast_paths(program: ExportedProgram) -> ExportedProgram:
    """Return ``program`` with its fused operators written out."""
    import torch

    return program.run_decompositions({torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer})


def _attention(
    x: torch.Tensor, heads: int, inner: tuple[Any, Any], outer: tuple[Any, Any], mask: Any, mask_type: int | None
) -> torch.Tensor:
    """Self-attention of (rows, length, width); ``inner`` and ``outer`` are the weights and biases of its products."""
    import torch

    rows, length, width = x.shape
    parts = torch.nn.functional.linear(x, *inner).view(rows, length, 3, heads, width // heads)
    query, key, value = parts.permute(2, 0, 3, 1, 4).unbind()
    kept = None if mask is None else ~mask.to(torch.bool)
    if kept is not None and mask_type == KEYS:
        kept = kept.view(rows, 1, 1, length)
    mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, kept)
    return torch.nn.functional.linear(mixed.transpose(1, 2).reshape(rows, length, width), *outer)


def _encoder_layer(src: torch.Tensor, embed_dim: int, num_heads: int, *arguments: Any) -> torch.Tensor:
    """``_transformer_encoder_layer_fwd``; ``arguments`` are those of its schema."""
    import torch

    inner, outer, (use_gelu, norm_first, eps) = arguments[0:2], arguments[2:4], arguments[4:7]
    norms, first, last = (arguments[7:9], arguments[9:11]), arguments[11:13], arguments[13:15]
    mask, mask_type = (*arguments[15:], None, None)[:2]
    functional = torch.nn.functional

    def attended(x: torch.Tensor) -> torch.Tensor:
        return _attention(x, num_heads, inner, outer, mask, mask_type)

    def fed(x: torch.Tensor) -> torch.Tensor:
        hidden = functional.linear(x, *first)
        return functional.linear(functional.gelu(hidden) if use_gelu else functional.relu(hidden), *last)

    def normed(x: torch.Tensor, number: int) -> torch.Tensor:
        return functional.layer_norm(x, (embed_dim,), *norms[number], eps)

    if norm_first:
        src = src + attended(normed(src, 0))
        return src + fed(normed(src, 1))
    src = normed(src + attended(src), 0)
    return normed(src + fed(src), 1)
