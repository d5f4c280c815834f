"""Every family of rewrites, and the operators that are replaced by the function ONNX defines them with."""

from __future__ import annotations

from autotune.contributions import contributed
from autotune.importer.conversion.frontend import import_graph
from autotune.importer.fusion import (  # noqa: F401  # importing them fills the registry
    parallel_convolutions,
    scales,
    shape_moves,
    unchanged,
)
from autotune.importer.low_bits import low_bit_operators  # noqa: F401  # importing it fills the registry
from autotune.importer.operators import (  # noqa: F401  # importing them fills the registry
    cached_attention,  # as below
    contrib_attention,
    contrib_ops,
    control,
    deformable,
    elementwise_ops,
    limits,
    minifloat,
    moving,
    normalising,
    pool_windows,
    quantised,
    recurrent_ops,
    resampling,
    sequences,
    signals,
)
from autotune.importer.operators.contractions import (  # noqa: F401  # as above
    byte_recurrent,
    einsum,
    grids,
    integer_products,
    reductions,
    running_sums,
)
from autotune.importer.operators.dynamic import ordering, regions, scatters, sequence_values, suppression  # noqa: F401  # as above
from autotune.importer.operators.whole_numbers import bits, casts, integer_arithmetic  # noqa: F401  # as above

contributed("operators")  # loading it fills the registry, too

__all__ = ["EXPANDED", "import_graph"]

EXPANDED = frozenset(
    {
        "Attention",
        "BlackmanWindow",
        "CausalConvWithState",
        "CenterCropPad",
        "DynamicQuantizeLinear",
        "FlexAttention",
        "HammingWindow",
        "HannWindow",
        "LinearAttention",
        "Mish",
        "NegativeLogLikelihoodLoss",
        "RMSNormalization",
        "RotaryEmbedding",
        "SoftmaxCrossEntropyLoss",
        "SwiGLU",
        "Swish",
    }
)
"""Those that Relax's importer lacks or gets wrong."""
