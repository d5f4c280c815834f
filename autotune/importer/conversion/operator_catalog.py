"""Every family of rewrites, and the operators that are replaced by the function ONNX defines them with."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import onnx
import onnx.inliner
from onnx import helper

from autotune.contributions import contributed
from autotune.importer.conversion.frontend import import_graph
from autotune.importer.fusion import (  # noqa: F401  # importing them fills the registry
    parallel_convolutions,
    scales,
    shape_moves,
)
from autotune.importer.low_bits import low_bit_operators  # noqa: F401  # importing it fills the registry
from autotune.importer.onnx_model.shapes import STANDARD_DOMAINS
from autotune.importer.operators import (  # noqa: F401  # importing them fills the registry
    blocked_ops,
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
    signals,
    whole_numbers,
)
from autotune.importer.operators.contractions import (  # noqa: F401  # as above
    einsum,
    grids,
    integer_products,
    reductions,
    sequences,
    transposed,
)
from autotune.importer.operators.control import inlined
from autotune.importer.operators.dynamic import ordering, regions, scatters, sequence_values, suppression  # noqa: F401  # as above
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import rewrites
from schedules.vocabulary.errors import first_line

contributed("operators")  # loading it fills the registry, too

__all__ = ["EXPANDED", "import_graph"]

EXPANDED = frozenset(
    {
        "Attention",
        "BlackmanWindow",
        "CastLike",
        "CausalConvWithState",
        "CenterCropPad",
        "HammingWindow",
        "HannWindow",
        "LinearAttention",
        "NegativeLogLikelihoodLoss",
        "RMSNormalization",
        "RotaryEmbedding",
        "SoftmaxCrossEntropyLoss",
        "SwiGLU",
        "Swish",
    }
)
"""Those that Relax's importer lacks or gets wrong."""


@rewrites("FlexAttention", domain="ai.onnx.preview")
@rewrites(*EXPANDED)
def by_definition(node: Node, e: Emit) -> list[str] | None:
    """Write the function that ONNX defines the operator with; None where ONNX has none for these types."""
    proto, scope = deepcopy(node.proto), node.scope
    domain = "" if proto.domain in STANDARD_DOMAINS else proto.domain
    declared = onnx.defs.get_schema(node.kind, scope.versions[domain], domain).attributes
    defaults = {name: attribute.default_value for name, attribute in declared.items()}
    missing = defaults.keys() - {attribute.name for attribute in proto.attribute}  # the inliner forgets them
    proto.attribute.extend(defaults[name] for name in sorted(missing) if defaults[name].type)
    inputs = [scope.described(name) for name in dict.fromkeys(proto.input)]
    graph = helper.make_graph([proto], "one", inputs, list(map(helper.make_empty_tensor_value_info, proto.output)))
    opsets = [helper.make_opsetid(name, version) for name, version in scope.versions.items()]
    try:
        one = helper.make_model(graph, opset_imports=opsets)
        written = onnx.inliner.inline_selected_functions(one, [(domain, node.kind)], inline_schema_functions=True).graph
    except (RuntimeError, ValueError) as error:
        raise node.refused(f"the function that defines it cannot be expanded: {first_line(error)}") from error
    is_same = [inner.op_type for inner in written.node] == [node.kind]
    return None if is_same else inlined(e, written, [], "defined")


@rewrites("DynamicQuantizeLinear")
def dynamically_quantised(node: Node, e: Emit) -> list[str] | None:
    """ONNX's function; the scale of a tensor of zeros is 1, as in ONNX Runtime."""
    results = by_definition(node, e)
    if results is None:
        return None
    levels, scale, zero = results
    scale = e.op("Where", e.op("Equal", scale, e.const(np.float32(0))), e.const(np.float32(1)), scale)
    return [levels, scale, zero]
