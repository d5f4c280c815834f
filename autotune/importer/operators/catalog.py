"""Every family of rewrites, and the operators that are replaced by the function ONNX defines them with."""

from __future__ import annotations

from autotune.importer.operators import (  # noqa: F401  # importing them fills the registry
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

__all__ = ["EXPANDED", "import_graph"]

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
