"""ONNX Runtime's own operators beside attention compute what ONNX Runtime computes."""

import numpy as np
import pytest
from onnx import TensorProto

from autotune.importer.load import load_model
from autotune.importer.onnx_model.shapes import MICROSOFT
from autotune.importer.program import simplify
from autotune.importer.rewriting.registry import ENTRIES
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.contrib_cases import Case, floats, integers
from tests.autotune_tests.importer_tests.low_bits_tests.test_low_bit_operators import ALL as LOW_BITS
from tests.autotune_tests.importer_tests.onnx_cases import rewritten, written
from tests.autotune_tests.importer_tests.operators_tests.test_contrib_attention import ALL as ATTENTION

U8, I8, I32 = TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32
ENDLESS = np.where(np.arange(4)[:, None] == 2, np.inf, floats(4, 3)).astype(np.float32)
X, SKIP = floats(2, 5, 8), floats(2, 5, 8, seed=1)
SCALE, SHIFT, BIAS = floats(8), floats(8, seed=1), floats(8, seed=2)
NORM = (1, 2, 3, 4)


def f32(value):
    return np.array(value, np.float32)


def u8(value):
    return np.array(value, np.uint8)


def i8(value):
    return np.array(value, np.int8)


def packed(columns, depth, block, bits, zeros=None, label=""):
    """A MatMulNBits with random weights."""
    blocks = -(-depth // block)
    arrays = [
        floats(3, depth),
        integers(0, 256, columns, blocks, block * bits // 8),
        floats(columns * blocks, scale=0.1),
    ]
    if zeros == "packed":
        arrays.append(integers(0, 256, columns * -(-blocks * bits // 8)))
    elif zeros == "floats":
        arrays.append(floats(columns, blocks, scale=4))
    attributes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    return Case("MatMulNBits", tuple(arrays), tuple(range(1, len(arrays))), attributes, label=label)


def quantised_lstm(directions, x, by_gate=False, label=""):
    """A DynamicQuantizeLSTM in standard operators. ONNX Runtime rounds ``x`` (steps, batch, 4) to 8 bits: 0 to 255 stay
    as they are. The others are in ``test_byte_recurrent``.
    """
    x.flat[:2] = 0, 255
    hidden, shape = 16, (directions, 64) if by_gate else (directions,)
    x_and_biases = (
        x,
        *(integers(-128, 128, directions, k, 64, dtype=np.int8) for k in (4, hidden)),
        floats(directions, 128),
    )
    scales = (np.full(shape, 1e-4, np.float32), np.zeros(shape, np.int8))
    attributes = {"hidden_size": hidden, "direction": "bidirectional" if directions == 2 else "forward", "clip": 0.4}
    inputs = (*x_and_biases, None, None, None, None, *scales, *scales)
    return Case("DynamicQuantizeLSTM", inputs, (1, 2, 3, 8, 9, 10, 11), attributes, (1, 1, 1), label=label)


INFINITE = [
    Case("CDist", (ENDLESS, np.abs(floats(5, 3))), places, {"metric": metric}, label=f"infinity, {metric}, {places}")
    for metric in ("sqeuclidean", "euclidean")
    for places in ((), (1,))
]
ELEMENTWISE = [
    Case("Gelu", (X,)),
    Case("Gelu", (X,), opset=11, label="opset 11"),
    Case("BiasGelu", (X, BIAS), (1,)),
    Case("FastGelu", (X,)),
    Case("FastGelu", (X, BIAS), (1,), label="bias"),
    Case("QuickGelu", (X,), attributes={"alpha": 1.5}),
    Case("Trilu", (floats(3, 8),), attributes={"upper": 0}),
    Case("Trilu", (floats(3, 8), np.array(2)), (1,), opset=11, label="opset 11"),
    Case("Pad", (floats(3, 8), np.array([1, 0, 0, 2]), f32(2)), (1, 2)),
    Case("Pad", (floats(3, 8), np.array([1, 0, 0, 2]), f32(2)), (1, 2), opset=10, label="opset 10"),
    Case("Pad", (floats(3, 8), np.array([1, 0, 0, 2])), (1,), {"mode": "reflect"}, opset=10, label="reflect, opset 10"),
    Case("GridSample", (floats(1, 2, 4, 5), floats(1, 3, 3, 2)), attributes={"padding_mode": "border"}),
    Case("ExpandDims", (floats(3, 8), np.array(-1, np.int32)), (1,)),
    Case("CDist", (floats(4, 3), floats(5, 3)), attributes={"metric": "sqeuclidean"}, label="squares"),
    Case("CDist", (floats(4, 3), floats(5, 3)), attributes={"metric": "euclidean"}),
    *(
        Case(
            "CDist", (ENDLESS, np.abs(floats(5, 3))), places, {"metric": metric}, label=f"infinity, {metric}, {places}"
        )
        for metric in ("sqeuclidean", "euclidean")
        for places in ((), (1,))
    ),
    Case("QuickGelu", (X,), label="default"),
    Case("GatherND", (floats(3, 4, 2), np.array([[0, 1], [2, -1]])), (1,)),
]
NORMS = [
    Case("LayerNormalization", (X, SCALE, SHIFT), (1, 2), {"axis": -1}, opset=13, domain=""),
    Case("LayerNormalization", (X, SCALE), (1,), {"axis": 2}, opset=11, domain="", label="no bias"),
    Case("SimplifiedLayerNormalization", (X, SCALE), (1,), {"axis": -1, "epsilon": 1e-3}, opset=13, domain=""),
    Case("SkipLayerNormalization", (X, SKIP, SCALE, SHIFT), (2, 3), {"epsilon": 1e-3}),
    Case("SkipLayerNormalization", (X, SKIP, SCALE, SHIFT, BIAS), NORM, opset=12, label="opset 12"),
    Case("SkipLayerNormalization", (X, SKIP, SCALE, None, BIAS), NORM, outputs=(1, 0, 0, 1), label="sum"),
    Case("SkipLayerNormalization", (X, SKIP[0], SCALE, SHIFT), NORM, label="one skip for all"),
    Case("SkipSimplifiedLayerNormalization", (X, SKIP, SCALE), (2,), {"epsilon": 1e-3}),
    Case("SkipSimplifiedLayerNormalization", (X, SKIP, SCALE, BIAS), (2, 3), outputs=(1, 0, 0, 1), label="sum"),
    Case("GroupNormalization", (X, SCALE[:1], SHIFT[:1]), (1, 2), {"num_groups": 1}, opset=18, domain=""),
    Case(
        "GroupNormalization",
        (floats(2, 6, 4, 5), floats(3), floats(3, seed=1)),
        (1, 2),
        {"num_groups": 3, "epsilon": 1e-3},
        opset=18,
        domain="",
        label="images",
    ),
]
WORDS, SEGMENTS = integers(0, 20, 2, 5, dtype=np.int32), integers(0, 2, 2, 5, dtype=np.int32)
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)
TABLES = (floats(20, 8), floats(7, 8), floats(2, 8))
BYTE_TABLES = tuple(integers(0, 256, *shape) for shape in ((20, 8), (7, 8), (2, 8), (8,), (8,)))
"""Words, positions, segments, scale and shift of a quantised layer of embeddings."""
EMBEDDINGS = [
    Case("EmbedLayerNormalization", (WORDS, SEGMENTS, *TABLES, SCALE, SHIFT, MASK), (2, 3, 4, 5, 6), outputs=(1, I32)),
    Case(
        "EmbedLayerNormalization",
        (WORDS, None, *TABLES[:2], None, SCALE, SHIFT, None, integers(0, 7, 2, 5, dtype=np.int32)),
        (2, 3, 5, 6),
        {"epsilon": 1e-3},
        outputs=(1, I32, 1),
        opset=11,
        label="positions",
    ),
    *(
        Case(
            "QEmbedLayerNormalization",
            (
                WORDS,
                SEGMENTS if segments else None,
                *BYTE_TABLES[:2],
                BYTE_TABLES[2] if segments else None,
                *BYTE_TABLES[3:],
                MASK,
                *(f32(0.01), f32(0.02), f32(0.03) if segments else None, f32(0.04), f32(0.05)),
                *(u8(100), u8(120), u8(130) if segments else None, u8(3), u8(128)),
            ),
            (2, 3, 4, 5, 6, *range(8, 18)),
            {"epsilon": 1e-3},
            outputs=(1, I32),
            opset=opset,
            label=f"segments {segments}, opset {opset}",
        )
        for segments, opset in ((True, 17), (False, 12))
    ),
]
IMAGE, KERNEL = floats(1, 3, 6, 6), floats(4, 3, 3, 3)
PRODUCTS = [
    Case("FusedMatMul", (floats(2, 4, 3), floats(2, 5, 4)), (), {"alpha": 0.5, "transA": 1, "transB": 1}),
    Case("FusedMatMul", (floats(3, 2, 4), floats(2, 4, 5)), (), {"transBatchA": 1}, label="batch of A"),
    Case("FusedMatMul", (floats(2, 3, 4), floats(4, 2, 5)), (), {"transBatchB": 1}, label="batch of B"),
    Case(
        "FusedMatMul",
        (floats(3, 2, 4), floats(5, 2, 4)),
        (),
        {"transBatchA": 1, "transBatchB": 1, "transB": 1},
        label="both",
    ),
    *(
        Case(
            "FusedGemm",
            (floats(3, 4), floats(5, 4), floats(5)),
            (1, 2),
            {"transB": 1, "alpha": 0.5, **activation},
            label=activation["activation"],
        )
        for activation in (
            {"activation": "Relu"},
            {"activation": "Tanh"},
            {"activation": "LeakyRelu", "activation_alpha": 0.2},
            {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
            {"activation": "Elu", "activation_alpha": 0.7},
        )
    ),
    *(
        Case(
            "FusedConv",
            (IMAGE, KERNEL, floats(4)),
            (1, 2),
            {"pads": [1] * 4, **activation},
            opset=opset,
            label=f"{activation['activation']} {opset}",
        )
        for opset in (9, 13)
        for activation in (
            {"activation": "Relu"},
            {"activation": "Sigmoid"},
            {"activation": "Clip", "activation_params": [0.0, 6.0]},
            {"activation": "LeakyRelu", "activation_params": [0.2]},
            {"activation": "HardSigmoid", "activation_params": [0.2, 0.5]},
        )
    ),
    Case("TransposeMatMul", (floats(2, 4, 3), floats(2, 4, 5)), (), {"transA": 1, "alpha": 2.0}),
    Case(
        "ConvTransposeWithDynamicPads",
        (IMAGE, floats(3, 2, 3, 3), np.array([1, 0, 1, 2])),
        (1, 2),
        {"strides": [2, 2], "output_padding": [1, 1]},
    ),
    Case("FusedConv", (IMAGE, KERNEL, floats(4), floats(1, 4, 4, 4)), (1, 2), {"activation": "Relu"}, label="sum"),
    packed(6, 64, 32, 4, "floats", label="zero points in floating point"),
    packed(6, 64, 32, 2, label="2 bits"),
]
A8, B8 = integers(0, 256, 3, 4), integers(-128, 128, 4, 5, dtype=np.int8)
POOL = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
INTEGER_PRODUCTS = [
    Case("MatMulIntegerToFloat", (A8, B8, f32(0.1), f32(0.2)), (1, 3)),
    Case("MatMulIntegerToFloat", (A8, B8, f32([0.1]), floats(5), u8([7]), None, floats(5)), (1, 3, 6), label="bias"),
    Case(
        "MatMulIntegerToFloat",
        (A8, B8, f32(0.1), floats(5), u8(7), integers(-9, 9, 5, dtype=np.int8)),
        (1, 3, 5),
        label="zero points by column",
    ),
    Case("DynamicQuantizeMatMul", (floats(3, 4), B8, f32(0.2)), (1, 2)),
    Case(
        "DynamicQuantizeMatMul",
        (floats(3, 4), B8, floats(5), integers(-9, 9, 5, dtype=np.int8), floats(5)),
        (1, 2, 3, 4),
        label="all",
    ),
    quantised_lstm(1, integers(0, 256, 1, 2, 4).astype(np.float32), label="exact"),
    quantised_lstm(2, integers(0, 256, 1, 2, 4).astype(np.float32), by_gate=True, label="by gate"),
    Case("NhwcMaxPool", (integers(0, 256, 1, 7, 6, 3),), attributes=POOL, outputs=(U8,)),
    Case(
        "NhwcMaxPool",
        (integers(-128, 128, 2, 9, 3, dtype=np.int8),),
        attributes={"kernel_shape": [3]},
        outputs=(I8,),
        label="1d",
    ),
    Case("QGemm", (A8, f32(0.1), u8(7), B8, f32(0.2), i8(3)), (3, 4)),
    Case(
        "QGemm",
        (
            A8,
            f32(0.1),
            u8(7),
            B8.T.copy(),
            floats(5) ** 2,
            np.zeros(5, np.int8),
            integers(-99, 99, 5, dtype=np.int32),
            f32(3.0),
            u8(100),
        ),
        (3, 4, 5, 6),
        {"transB": 1, "alpha": 0.5},
        outputs=(U8,),
        label="quantised",
    ),
]
Q, R = integers(0, 256, 1, 4, 6, 6), integers(0, 256, 1, 4, 6, 6, dtype=np.uint8)[:, ::-1].copy()
SIGNED = integers(-128, 128, 1, 4, 6, 6, dtype=np.int8)
POOL = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
QUANTISED = [
    Case("QLinearAdd", (Q, f32(0.1), u8(100), R, f32(0.2), u8(120), f32(0.3), u8(128)), outputs=(U8,)),
    Case(
        "QLinearAdd",
        (SIGNED, f32(0.1), i8(3), SIGNED[:, :1], f32(0.2), i8(0), f32(0.3), i8(-9)),
        outputs=(I8,),
        label="signed",
    ),
    Case("QLinearMul", (Q, f32(0.1), u8(100), R, f32(0.2), u8(120), f32(2.0), u8(128)), outputs=(U8,)),
    Case("QLinearSigmoid", (Q, f32(0.1), u8(100), f32(1 / 256), u8(0)), outputs=(U8,)),
    Case("QLinearLeakyRelu", (SIGNED, f32(0.1), i8(3), f32(0.2), i8(0)), attributes={"alpha": 0.3}, outputs=(I8,)),
    Case("QLinearConcat", (f32(0.3), u8(128), Q, f32(0.1), u8(100), R, f32(0.2), u8(120)), (0, 1), {"axis": 1}, (U8,)),
    Case(
        "QLinearWhere",
        (Q > 128, Q, f32(0.1), u8(100), R, f32(0.2), u8(120), f32(0.3), u8(128)),
        (2, 3, 5, 6, 7, 8),
        outputs=(U8,),
    ),
    Case("QLinearGlobalAveragePool", (Q, f32(0.1), u8(100), f32(0.05), u8(128)), outputs=(U8,)),
    Case(
        "QLinearGlobalAveragePool",
        (Q, f32(0.1), u8(100), f32(0.05), u8(128)),
        attributes={"channels_last": 1},
        outputs=(U8,),
        label="channels last",
    ),
    *(
        Case(
            "QLinearConv",
            (
                Q,
                f32(0.1),
                u8(100),
                integers(-128, 128, 5, depth, 3, 3, dtype=np.int8),
                f32(0.02),
                i8(0),
                f32(2.0),
                u8(90),
            ),
            (1, 2, 3, 4, 5, 6, 7),
            {"channels_last": last, "pads": [1] * 4},
            outputs=(U8,),
            label=f"channels last {last}",
        )
        for last, depth in ((0, 4), (1, 6))
    ),
    Case("QLinearAveragePool", (Q, f32(0.1), u8(100), f32(0.05), u8(128)), attributes=POOL, outputs=(U8,)),
    Case(
        "QLinearAveragePool",
        (Q, f32(0.1), u8(100), f32(0.05), u8(128)),
        attributes={**POOL, "count_include_pad": 1, "channels_last": 1, "pads": [0, 1, 0, 1]},
        outputs=(U8,),
        label="channels last",
    ),
    Case("QLinearSoftmax", (Q, f32(0.1), u8(100), f32(1 / 256), u8(0)), (1, 2, 3, 4), {"axis": 1, "opset": 13}, (U8,)),
    Case(
        "QLinearSoftmax",
        (Q, f32(0.1), u8(100), f32(1 / 256), u8(0)),
        (1, 2, 3, 4),
        {"axis": 2, "opset": 12},
        (U8,),
        label="12",
    ),
    Case(
        "QuantizeLinear", (floats(2, 3) * 9, f32(0.1), np.array(1000, np.uint16)), (1, 2), outputs=(TensorProto.UINT16,)
    ),
    Case("DequantizeLinear", (integers(0, 60000, 2, 3, dtype=np.uint16), f32(0.1), np.array(1000, np.uint16)), (1, 2)),
]
BUILT = [
    Case("FusedGemm", (floats(3, 4), floats(5, 4), floats(5)), (1, 2), {"transB": 1, "activation": "Relu"}),
    Case("Unique", (f32([3, 1, 3, 2, 1]),), outputs=(1, TensorProto.INT64, TensorProto.INT64)),
]
WITHDRAWN = [
    Case(kind, (floats(2, 2, 4, 5),), (), attributes, opset=opset, domain="", label=f"{attributes}")
    for kind, opset, attributes in (
        ("Affine", 7, {"alpha": 2.0, "beta": 0.5}),
        ("Crop", 7, {"border": [1, 0, 2, 1]}),
        ("Crop", 7, {"border": [1, 1, 0, 0], "scale": [2, 3]}),
        ("ImageScaler", 7, {"scale": 2.0, "bias": [1.0, -2.0]}),
        ("MeanVarianceNormalization", 7, {"across_channels": 1}),
        ("MeanVarianceNormalization", 8, {"across_channels": 0}),
        ("MeanVarianceNormalization", 8, {"across_channels": 0, "normalize_variance": 0}),
        ("ParametricSoftplus", 7, {"alpha": 0.5, "beta": 1.5}),
        ("Scale", 8, {"scale": 3.0}),
        ("ScaledTanh", 9, {"alpha": 0.7, "beta": 1.3}),
        ("ThresholdedRelu", 9, {"alpha": 0.4}),
    )
] + [
    Case("DynamicSlice", (floats(4, 5), np.array([1, 0]), np.array([3, 9])), (1, 2), opset=7, domain=""),
    Case("DynamicSlice", (floats(4, 5), *map(np.array, ([-3], [5], [1]))), (1, 2, 3), opset=7, domain="", label="axes"),
]
"""Operators that ONNX withdrew and ONNX Runtime runs."""
CASES = [*WITHDRAWN, *ELEMENTWISE, *NORMS, *EMBEDDINGS, *PRODUCTS, *INTEGER_PRODUCTS, *QUANTISED]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_computes_what_onnxruntime_computes(case, tmp_path):
    rewritten(case.model(), tmp_path, case.feed())


@pytest.mark.parametrize("case", [c for c in CASES if c.outputs == (1,) and c.domain], ids=str)
def test_nothing_foreign_is_left(case, tmp_path):
    plain = simplify(load_model(written(case.model(), tmp_path)))
    assert {node.domain for node in plain.graph.node} <= {""}


def test_every_one_of_these_operators_has_a_case():
    tested = {case.kind for case in [*CASES, *BUILT, *ATTENTION, *LOW_BITS]} | {
        "Range"
    }  # it has no input: in test_mend.py
    ours = {kind for _, domain, kind in ENTRIES if domain == MICROSOFT}
    assert ours <= tested


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (Case("FusedConv", (IMAGE, KERNEL), (1,), {"activation": "Swoosh"}), "'Swoosh' is none of Clip"),
        (packed(6, 32, 16, 3), "bits 3"),
        (
            Case("GridSample", (floats(1, 2, 4, 5), floats(1, 3, 3, 2)), opset=13),
            "from opset 16 on, and the model has 13",
        ),
        (Case("SkipLayerNormalization", (X, SKIP, SCALE, SHIFT), (2, 3), outputs=(1, 1)), "for training"),
    ],
    ids=str,
)
def test_what_is_not_supported_is_named(case, why, tmp_path):
    model = load_model(written(case.model(), tmp_path))
    with pytest.raises(ModelError, match=rf"com.microsoft::{case.kind} \(node 'one'\).*{why}"):
        simplify(model)


@pytest.mark.parametrize("case", BUILT, ids=str)
def test_a_built_model_computes_what_onnxruntime_computes(case, tmp_path):
    assert close(*run(case.model(), tmp_path, case.feed()))


@pytest.mark.parametrize("case", INFINITE, ids=str)
def test_built_distances_of_infinite_rows_are_no_numbers(case, tmp_path):
    (ours,), (theirs,) = run(case.model(), tmp_path, case.feed())
    assert np.isnan(theirs[2]).all()
    assert np.isnan(ours[2]).all()
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
