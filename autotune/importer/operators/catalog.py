"""Every family of rewrites, and the operators that are replaced by the function ONNX defines them with."""

from __future__ import annotations

from autotune.importer.operators import (
    bits,
    clipping,
    codes,
    control,
    deformable,
    elementwise,
    moving,
    normalising,
    quantised,
    recurrent,
    reducing,
    resampling,
    sequences,
    signals,
)
from autotune.importer.operators.frontend import import_graph

__all__ = ["EXPANDED", "FAMILIES", "import_graph"]

FAMILIES = (
    bits,
    clipping,
    codes,
    control,
    deformable,
    elementwise,
    moving,
    normalising,
    quantised,
    recurrent,
    reducing,
    resampling,
    sequences,
    signals,
)
"""Importing them fills the registry."""

EXPANDED = frozenset(
    {
        "AffineGrid",
        "Attention",
        "BlackmanWindow",
        "CausalConvWithState",
        "Celu",
        "CenterCropPad",
        "FlexAttention",
        "HammingWindow",
        "HannWindow",
        "LinearAttention",
        "Mish",
        "NegativeLogLikelihoodLoss",
        "Range",
        "RotaryEmbedding",
        "SoftmaxCrossEntropyLoss",
        "SwiGLU",
        "Swish",
    }
)
"""Those that Relax's importer lacks or gets wrong."""
