"""ONNX Runtime's own operators beside attention: what its optimiser, its quantisers and its exporters write.

Each becomes standard operators, after ONNX Runtime's documentation of its contrib operators and, where that is silent,
what its CPU kernels compute.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from autotune.importer.onnx_model.shapes import BYTE_LSTM, MICROSOFT, OWN_DOMAIN
from autotune.importer.operators.elementwise_ops import gelu_of
from autotune.importer.operators.moving import pad
from autotune.importer.operators.quantised import GEOMETRY
from autotune.importer.operators.recurrent_ops import LENGTHS, all_whole, cut_off, in_one_kernel, one_way, reads_cells
from autotune.importer.rewriting.emit import FLOAT, Emit, Node
from autotune.importer.rewriting.folding import made_of_constants
from autotune.importer.rewriting.registry import rewrites

PADS_AS_INPUT, QUANTISES, DISTINGUISHES = 11, 11, 11
"""Opsets from which ``Pad`` has its pads and its value as inputs, ``DynamicQuantizeLinear`` exists, and ``Unique``."""

SLICES_BY_INPUTS = 10
"""Opset from which the bounds of ``Slice`` are inputs."""

SINCE = {"GridSample": 16, "GatherND": 11}
"""Operator that ONNX Runtime had before ONNX → the opset from which ONNX has it."""

SCALES = (8, 9, 10, 11)
"""Inputs of DynamicQuantizeLSTM: scales and zero points of W, and of R."""

EMBEDDING_SCALES, EMBEDDING_ZEROS = 6, 11
"""How far behind a table of QEmbedLayerNormalization its scale and its zero point are."""

ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "HardSwish": (),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
"""Activation that a product or convolution takes in → its parameters, in order."""


@rewrites("Gelu", "BiasGelu", "FastGelu", domain=MICROSOFT)
def gelu(node: Node, e: Emit) -> list[str] | None:
    """Return Gelu of x, or of x + bias."""
    x = e.op("Add", node.input(0), node.input(1)) if node.input(1) else node.input(0)
    return [gelu_of(e, x, by_tanh=node.kind == "FastGelu")]


@rewrites("QuickGelu", domain=MICROSOFT)
def quick_gelu(node: Node, e: Emit) -> list[str] | None:
    """x · sigmoid(alpha · x)."""
    x = node.input(0)
    return [e.op("Mul", x, e.op("Sigmoid", e.op("Mul", x, e.like(node.attr("alpha", 1.702)))))]


def _layer_norm(e: Emit, kind: int, x: str, scale: str, bias: str, epsilon: float) -> str:
    """(x − mean) ÷ √(variance + epsilon) · scale + bias over the last axis of x, which is of the type ``kind``."""
    if e.opset >= 17:
        return e.op("LayerNormalization", x, scale, *([bias] if bias else []), axis=-1, epsilon=epsilon)
    y = _rms_norm(e, kind, x, scale, [-1], epsilon, centred=True)
    return e.op("Add", y, bias) if bias else y


@rewrites("SimplifiedLayerNormalization")
def simplified_layer_norm(node: Node, e: Emit) -> list[str] | None:
    """X ÷ √(mean of x² + epsilon) · scale; ONNX Runtime keeps it in ONNX's own domain."""
    if node.wants(1):
        raise node.refused("its second output, the inverse deviation, is for training")
    rank = len(node.shape(0))
    axes = list(range(int(node.attr("axis", -1)) % rank, rank))
    return [_rms_norm(e, node.type(0), node.input(0), node.input(1), axes, node.attr("epsilon", 1e-5))]


def _rms_norm(
    e: Emit, kind: int, x: str, scale: str, axes: Sequence[int], epsilon: float, centred: bool = False
) -> str:
    """X ÷ √(mean of x² + epsilon) · scale, in fp32; of x less its mean where it is ``centred``."""
    x = e.cast(x, FLOAT) if kind != FLOAT else x
    x = e.op("Sub", x, e.reduce("ReduceMean", x, axes)) if centred else x
    power = e.reduce("ReduceMean", e.op("Mul", x, x), axes)
    normal = e.op("Div", x, e.op("Sqrt", e.op("Add", power, e.const(np.float32(epsilon)))))
    return e.op("Mul", e.cast(normal, kind) if kind != FLOAT else normal, scale)


@rewrites("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(node: Node, e: Emit) -> list[str] | None:
    """A normalisation of input + skip + bias, and that sum as output 3."""
    if node.wants(1) or node.wants(2):
        raise node.refused("its second and third output, mean and inverse deviation, are for training")
    simplified = node.kind == "SkipSimplifiedLayerNormalization"
    bias = node.input(3 if simplified else 4)
    if not node.type(0):
        raise node.refused(f"the type of its input {node.input(0)!r} is not known")
    total = e.op("Add", node.input(0), node.input(1))
    total = e.op("Add", total, bias) if bias else total
    epsilon = float(node.attr("epsilon", 1e-12))
    if simplified:
        y = _rms_norm(e, node.type(0), total, node.input(2), [-1], epsilon)
    else:
        y = _layer_norm(e, node.type(0), total, node.input(2), node.input(3), epsilon)
    return [y, "", "", total]


@rewrites("EmbedLayerNormalization", "QEmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(node: Node, e: Emit) -> list[str] | None:
    """Normalised sum of word, position and segment embeddings (batch, length, hidden), lengths by the mask, the sum.

    The quantised form has tables, scale and bias of 8 bits, with a scale and a zero point each. It counts positions.
    """
    is_quantised = node.kind.startswith("Q")

    def numbers(index: int, rows: str = "") -> str:
        """The input ``index``, or some of its ``rows``, as numbers."""
        name = rows or node.input(index)
        if not (is_quantised and name):
            return name
        places = (index + EMBEDDING_SCALES, index + EMBEDDING_ZEROS)
        return e.op("DequantizeLinear", name, *(e.reshape(node.input(place)) for place in places))

    batch, length = node.shape(0)
    total = numbers(2, e.op("Gather", node.input(2), node.input(0), axis=0))
    if node.input(8) and not is_quantised:
        positions = e.op("Gather", node.input(3), node.input(8), axis=0)
    else:
        positions = numbers(3, e.slice(node.input(3), 0, 0, length))
    total = e.op("Add", total, positions)
    if node.input(1):
        total = e.op("Add", total, numbers(4, e.op("Gather", node.input(4), node.input(1), axis=0)))
    kind = FLOAT if is_quantised else node.type(2)
    y = _layer_norm(e, kind, total, numbers(5), numbers(6), float(node.attr("epsilon", 1e-12)))
    lengths = e.const(np.zeros(batch, np.int32))
    if node.input(7):
        used = e.cast(e.op("Equal", node.input(7), e.const(np.int32(1))), TensorProto.INT32)
        lengths = e.reduce("ReduceSum", used, [1], keepdims=False)
    return [y, lengths, total]


@rewrites("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(node: Node, e: Emit) -> list[str] | None:
    """Alpha · A·B, with either transposed before."""

    def turned(index: int, side: str) -> str:
        rank = node.rank(index)
        perm = list(range(rank))
        if rank > 1 and node.attr(f"transBatch{side}", 0):  # the first axis goes behind the batch axes
            perm = [*range(1, rank - 1), 0, rank - 1]
        if rank > 1 and node.attr(f"trans{side}", 0):
            perm[-2:] = perm[:-3:-1]
        return e.transpose(node.input(index), *perm) if perm != list(range(rank)) else node.input(index)

    product = e.op("MatMul", turned(0, "A"), turned(1, "B"))
    alpha = float(node.attr("alpha", 1.0))
    return [e.op("Mul", product, e.like(alpha)) if alpha != 1 else product]


def activated(node: Node, e: Emit, x: str, kind: str, parameters: Sequence[float]) -> str:
    """``x`` through the activation ``kind``; missing parameters have ONNX's defaults."""
    if kind not in ACTIVATIONS:
        raise node.refused(f"its activation {kind!r} is none of {', '.join(ACTIVATIONS)}")
    arguments = dict(zip(ACTIVATIONS[kind], map(float, parameters), strict=False))
    if kind == "Clip" and e.opset >= 11:
        return e.op("Clip", x, *(e.like(value) for value in arguments.values()))
    return e.op(kind, x, **arguments)


@rewrites("FusedGemm", domain=MICROSOFT)
def fused_gemm(node: Node, e: Emit) -> list[str] | None:
    """A Gemm and an activation."""
    product = e.op("Gemm", *node.proto.input, **node.given("alpha", "beta", "transA", "transB"))
    kind = str(node.attr("activation", ""))
    parameters = [node.attr(f"activation_{name}") for name in ACTIVATIONS.get(kind, ())]
    return [activated(node, e, product, kind, [value for value in parameters if value is not None])]


@rewrites("FusedConv", domain=MICROSOFT)
def fused_conv(node: Node, e: Emit) -> list[str] | None:
    """A convolution, a tensor of its result's shape (input 3) added to it, and an activation."""
    result = e.op("Conv", *map(node.input, range(3 if node.input(2) else 2)), **node.given(*GEOMETRY))
    result = e.op("Add", result, node.input(3)) if node.input(3) else result
    return [activated(node, e, result, str(node.attr("activation", "")), node.attr("activation_params", []))]


@rewrites("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(node: Node, e: Emit) -> list[str] | None:
    """(A − zero point)·(B − zero point), summed in int32, times both scales, plus a bias."""
    zeros = [e.reshape(node.input(4)) if node.input(4) else "", node.input(5)]
    product = e.op("MatMulInteger", node.input(0), node.input(1), *zeros)
    return [_scaled(e, product, node.input(2), node.input(3), node.input(6), node.type(2))]


@rewrites("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(node: Node, e: Emit) -> list[str] | None:
    """A, quantised to uint8 by its own range, times B in int8 or uint8, times both scales, plus a bias."""
    a, scale, zero = e.ops("DynamicQuantizeLinear", node.input(0), outputs=3)
    product = e.op("MatMulInteger", a, node.input(1), zero, node.input(3))
    return [_scaled(e, product, scale, node.input(2), node.input(4), FLOAT)]


@rewrites("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(node: Node, e: Emit) -> list[str] | None:
    """MaxPool of bytes whose channels are the last axis."""
    rank = len(node.shape(0))
    pooled = e.op("MaxPool", e.transpose(node.input(0), 0, rank - 1, *range(1, rank - 1)), **node.attributes)
    return [e.transpose(pooled, 0, *range(2, rank), 1)]


@rewrites(*SINCE, domain=MICROSOFT)
def standard_operator(node: Node, e: Emit) -> list[str] | None:
    """Write the standard operator, which ONNX has from the opset in ``SINCE`` on."""
    if e.opset < SINCE[node.kind]:
        raise node.refused(f"ONNX has it from opset {SINCE[node.kind]} on, and the model has {e.opset}")
    return [e.op(node.kind, node.input(0), node.input(1), **node.attributes)]


@rewrites("Pad", domain=MICROSOFT)
def padded(node: Node, e: Emit) -> list[str] | None:
    """Write the standard operator, whose pads are an attribute below opset ``PADS_AS_INPUT``."""
    if e.opset >= PADS_AS_INPUT:
        return [e.op("Pad", *(str(name) for name in node.proto.input), **node.attributes)]
    written = pad(node, e)
    if written is not None:
        return written
    pads = [int(number) for number in node.constant(1, "pads")]
    value = float(node.constant(2, "value").reshape(-1)[0]) if node.input(2) else 0.0
    return [e.op("Pad", node.input(0), pads=pads, value=value, **node.given("mode"))]


@rewrites("Trilu", domain=MICROSOFT)
def triangle(node: Node, e: Emit) -> list[str] | None:
    """Keep the elements of a triangle and set the others to zero."""
    rows, columns = node.shape(0)[-2:]
    diagonal = int(node.constant(1, "diagonal").reshape(-1)[0]) if node.input(1) else 0
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    inside = distance >= diagonal if int(node.attr("upper", 1)) else distance <= diagonal
    return [e.op("Where", e.const(inside), node.input(0), e.like(0))]


@rewrites("ExpandDims", domain=MICROSOFT)
def expand_dims(node: Node, e: Emit) -> list[str] | None:
    """Insert an axis of length 1 at a constant place."""
    return [e.unsqueeze(node.input(0), int(node.constant(1, "axis").reshape(-1)[0]))]


@rewrites("Range", domain=MICROSOFT)
def numbers(node: Node, e: Emit) -> list[str] | None:
    """Count like ONNX's operator, by one where no step is given; bounds may be vectors of one number."""
    step = e.reshape(node.input(2)) if node.input(2) else e.like(1)
    return [e.op("Range", e.reshape(node.input(0)), e.reshape(node.input(1)), step)]


@rewrites("Unique", domain=MICROSOFT)
def unique(node: Node, e: Emit) -> list[str] | None:
    """Distinct elements in the order of their first occurrence, the index of each element among them, and counts."""
    if e.opset < DISTINGUISHES:
        raise node.refused(f"ONNX has it from opset {DISTINGUISHES} on, and the model has {e.opset}")
    values, _, inverse, counts = e.ops("Unique", node.input(0), outputs=4, sorted=0)
    return [values, inverse, counts]


@rewrites("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose_with_pads(node: Node, e: Emit) -> list[str] | None:
    """Write ConvTranspose, if the pads are constants."""
    pads = {"pads": [int(number) for number in node.constant(2, "pads")]} if node.input(2) else {}
    bias = [node.input(3)] if node.input(3) else []
    return [e.op("ConvTranspose", node.input(0), node.input(1), *bias, **node.attributes, **pads)]


@rewrites("Affine", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh")
def withdrawn(node: Node, e: Emit) -> list[str] | None:
    """Write α · f(β · x), or a multiple of x and a number, one for each channel of an image, added to it."""
    x, scale = node.input(0), e.like(node.attr("alpha", node.attr("scale", 1.0)))
    if node.kind in ("ParametricSoftplus", "ScaledTanh"):
        inner = e.op("Mul", x, e.like(node.attr("beta", 1.0)))
        return [e.op("Mul", e.op("Tanh" if node.kind == "ScaledTanh" else "Softplus", inner), scale)]
    bias = np.array(node.attr("bias", node.attr("beta", 0.0)))
    bias = bias.reshape(-1, *[1] * (len(node.shape(0)) - 2)) if bias.ndim else bias
    return [e.op("Add", e.op("Mul", x, scale), e.const(bias.astype(node.dtype(0))))]


@rewrites("Crop", "DynamicSlice")
def cropped(node: Node, e: Emit) -> list[str] | None:
    """Cut an image (left, top, right, bottom), or as ``Slice`` does since its bounds are inputs."""
    if node.kind == "Crop":
        (*_, height, width), (left, top, right, bottom) = node.shape(0), map(int, node.attr("border"))
        starts, axes = [top, left], [2, 3]
        size = node.attr("scale") or (height - top - bottom, width - left - right)
        ends = [start + int(length) for start, length in zip(starts, size, strict=True)]
    else:
        starts, ends = node.constant(1, "starts").tolist(), node.constant(2, "ends").tolist()
        axes = node.constant(3, "axes").tolist() if node.input(3) else list(range(len(starts)))
    if e.opset < SLICES_BY_INPUTS:
        return [e.op("Slice", node.input(0), starts=starts, ends=ends, axes=axes)]
    return [e.op("Slice", node.input(0), e.ints(*starts), e.ints(*ends), e.ints(*axes))]


@rewrites("CDist", domain=MICROSOFT)
def distances(node: Node, e: Emit) -> list[str] | None:
    """Compute the (n, m) distances of n and m rows, or their squares, from differences: squares would cancel.

    ONNX Runtime computes x² + y² − 2 · x · y, which is NaN of a row with infinities. So are these distances.
    """
    apart = e.op("Sub", e.unsqueeze(node.input(0), 1), e.unsqueeze(node.input(1), 0))
    squares = e.reduce("ReduceSum", e.op("Mul", apart, apart), [2], keepdims=False)
    squares = e.op("Where", e.op("IsInf", squares), e.like(np.nan), squares)
    return [squares if str(node.attr("metric", "sqeuclidean")) == "sqeuclidean" else e.op("Sqrt", squares)]


@rewrites("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(node: Node, e: Emit) -> list[str] | None:
    """An LSTM whose weights W and R are (8 bits − zero point) · scale, (directions, inputs, gates · hidden) each.

    ONNX Runtime rounds X, and h in every step, to 8 bits. Where all steps are one kernel, this is done in the same way;
    elsewhere products are summed in fp32, nearer to the LSTM before it was quantised.
    """
    node.shape(0)  # layers before it may have none yet; widened weights would not become bytes again
    constants = made_of_constants(node.scope.graph, node.scope.given)
    if e.opset >= QUANTISES and in_one_kernel(node) and {node.input(k) for k in SCALES} <= constants:
        operands = [node.input(k) for k in range(1, 12)]
        if not node.input(LENGTHS) or all_whole(node):
            return _byte_lstm(node, e, node.input(0), operands, "", len(node.proto.output))
        if not reads_cells(node):
            return cut_off(node, e, lambda x, own, alive: _byte_lstm(node, e, x, own, alive, 1)[0])
    weights = [_widened(node, e, *places) for places in ((1, 8, 9), (2, 10, 11))]
    rest = (node.input(k) for k in range(3, 8))
    return e.ops("LSTM", node.input(0), *weights, *rest, outputs=len(node.proto.output), **node.attributes)


def _byte_lstm(node: Node, e: Emit, x: str, operands: list[str], alive: str, outputs: int) -> list[str]:
    """Outputs of our own operator with what stands behind X in DynamicQuantizeLSTM.

    Args:
        alive: whether a sequence has a step, (steps, batch, 1), of a layer that walks forwards; "" for all of them.
            ONNX Runtime's ranges are those of the steps that some sequence has, and of states that are 0 behind its
            end.
    """
    (steps, batch, _), (directions, hidden, _) = node.shape(0), node.shape(2)
    attributes = node.attributes
    if alive:
        directions, attributes = 1, one_way(node)
        some = e.reduce("ReduceMax", e.cast(alive, FLOAT), [1])
        x = e.op("Where", e.cast(some, TensorProto.BOOL), x, e.like(0))
    w, r, bias, _, h, c, _, *scales = operands
    quantised = e.ops("DynamicQuantizeLinear", x, outputs=3)
    inputs = [*quantised, w, *scales[:2], r, *scales[2:], bias, h, c, alive]
    results = e.ops(BYTE_LSTM, *inputs, outputs=outputs, domain=OWN_DOMAIN, **attributes)
    last = (directions, batch, hidden)
    for name, shape in zip(results, ((steps, *last), last, last), strict=False):
        e.declare(name, shape, FLOAT)
    return results


def _widened(node: Node, e: Emit, weight: int, scale: int, zero: int) -> str:
    """A weight of DynamicQuantizeLSTM as that of an LSTM: (directions, gates · hidden, inputs), in fp32.

    Scale and zero point are (directions,) or (directions, gates · hidden).
    """
    spread = (node.shape(scale)[0], 1, -1)
    values = e.op("Sub", e.cast(node.input(weight), FLOAT), e.reshape(e.cast(node.input(zero), FLOAT), *spread))
    return e.transpose(e.op("Mul", values, e.reshape(node.input(scale), *spread)), 0, 2, 1)


def _scaled(e: Emit, product: str, scale_a: str, scale_b: str, bias: str, kind: int) -> str:
    scaled = e.op("Mul", e.cast(product, kind), e.op("Mul", scale_a, scale_b))
    return e.op("Add", scaled, bias) if bias else scaled
