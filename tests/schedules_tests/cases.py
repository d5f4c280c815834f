"""The cases: several shapes per template, among them channel counts and sizes that no vector divides."""

from __future__ import annotations

import numpy as np
from tvm import relax

from schedules.templates.instructions.dots import BF16, U8S8
from tests.schedules_tests.programs import (
    Case,
    batch_case,
    conv_case,
    depthwise_case,
    dot_conv_case,
    dot_matmul_case,
    instance_norm,
    layer_norm,
    low_bit_case,
    matmul_case,
    normalised,
    pool_case,
    relax_case,
    softmax,
    straddling_case,
    taps_case,
)
from tests.schedules_tests.recurrent_cases import RECURRENT
from tests.schedules_tests.sums_cases import CHANNEL_SUMS

op = relax.op

CONVOLUTIONS = (
    conv_case("conv2d_1x1", (1, 2, 6, 5, 16), (3, 2, 1, 1, 16, 16)),
    conv_case("conv2d_ragged", (1, 2, 3, 13, 16), (4, 2, 1, 1, 16, 16)),
    conv_case("conv2d_ragged_3x3", (2, 2, 4, 17, 16), (4, 2, 3, 3, 16, 16), pads=(1, 1, 1, 1)),
    conv_case("conv2d_ragged_signal", (1, 2, 1, 53, 16), (2, 2, 1, 3, 16, 16), pads=(0, 1, 0, 1)),
    conv_case("conv2d_ragged_first", (1, 3, 9, 26), (2, 3, 3, 3, 1, 16), (1, 2), (1, 1, 1, 1), epilogue=False),
    conv_case("conv2d_3x3", (1, 2, 8, 7, 16), (2, 2, 3, 3, 16, 16), pads=(1, 1, 1, 1)),
    conv_case("conv2d_first_layer", (1, 3, 13, 13), (2, 3, 5, 5, 1, 16), (2, 2), (2, 2, 2, 2)),
    conv_case("conv2d_odd_channels", (1, 1, 6, 6, 16), (1, 13, 3, 3, 1, 16), (2, 1), (1, 0, 1, 2), epilogue=False),
    conv_case("conv2d_dilated", (2, 1, 9, 9, 8), (2, 1, 3, 2, 8, 8), dilation=(2, 3), epilogue=False),
    conv_case("conv2d_long", (1, 16, 4, 4, 8), (2, 16, 3, 3, 8, 8), pads=(1, 1, 1, 1)),
    conv_case("conv2d_long_bare", (2, 64, 4, 2, 16), (2, 64, 1, 1, 16, 16), epilogue=False),
    conv_case("conv2d_grouped", (1, 4, 6, 6, 8), (4, 2, 3, 3, 8, 8), pads=(1, 1, 1, 1), groups=2),
    straddling_case("conv2d_straddling", (1, 2, 6, 6, 8), 12, 2),
    straddling_case("conv2d_straddling_shuffled", (1, 3, 6, 6, 8), 10, 2, dealt=3),
    straddling_case("conv2d_straddling_3x3", (1, 3, 5, 7, 16), 28, 4, 3),
    depthwise_case("depthwise_3x3", (1, 2, 8, 8, 16), (3, 3), 1, (1, 1, 1, 1), 1),
    depthwise_case("depthwise_5x5_strided", (2, 1, 9, 11, 8), (5, 5), 2, (2, 1, 2, 1), 1),
    depthwise_case("depthwise_dilated", (1, 1, 9, 9, 16), (3, 3), 1, (0, 0, 0, 0), 2),
    pool_case("pool_max", (1, 2, 9, 9, 16), "max", 3, 2, (1, 1, 1, 1), False),
    pool_case("pool_average", (1, 2, 8, 8, 16), "avg", 2, 2, (0, 0, 0, 0), False),
    pool_case("pool_average_edges", (1, 1, 7, 7, 8), "avg", 3, 1, (1, 1, 1, 1), False),
    pool_case("pool_average_padded", (1, 1, 7, 7, 8), "avg", 3, 1, (1, 1, 1, 1), True),
)

PRODUCTS = (
    matmul_case("matmul_rows", 12, 24, 3, 16),
    matmul_case("matmul_vector", 1, 40, 4, 16),
    matmul_case("matmul_vector_bare", 1, 80, 4, 16, epilogue=False),
    matmul_case("matmul_odd", 7, 9, 5, 8),
    matmul_case("matmul_prime", 37, 24, 3, 16),
    matmul_case("matmul_long", 16, 1536, 2, 16),
    batch_case("batch_matmul_scores", "bmhk,bnhk->bhmn", (1, 8, 3, 12), (1, 32, 3, 12), 16, True),
    batch_case("batch_matmul_context", "bhmk,bkhn->bmhn", (2, 3, 8, 12), (2, 12, 3, 16), 16, False),
    batch_case("batch_matmul_odd_scores", "bmhk,bnhk->bhmn", (1, 7, 2, 9), (1, 13, 2, 9), 8, True),
    batch_case("batch_matmul_odd_context", "bhmk,bkhn->bmhn", (1, 2, 9, 11), (1, 11, 2, 16), 16, False),
    batch_case("batch_matmul_plain", "bmk,bkn->bmn", (4, 7, 5), (4, 5, 24), 8, True),
    batch_case("batch_matmul_bf16", "bmhk,bnhk->bhmn", (1, 7, 3, 12), (1, 24, 3, 12), 16, True, "bfloat16"),
    batch_case("batch_matmul_bf16_odd", "bhmk,bkhn->bmhn", (1, 2, 9, 11), (1, 11, 2, 13), 8, False, "bfloat16"),
)

DOTS = tuple(
    case
    for form in (U8S8, BF16)
    for case in (
        dot_conv_case(f"conv2d_{form.name}_1x1", (1, 2, 6, 5, 16), (3, 2, 1, 1, 16, 16), form),
        dot_conv_case(f"conv2d_{form.name}_3x3", (1, 2, 8, 7, 16), (2, 2, 3, 3, 16, 16), form, pads=(1, 1, 1, 1)),
        dot_conv_case(f"conv2d_{form.name}_first", (1, 1, 13, 13, 4), (2, 1, 5, 5, 4, 16), form, (2, 2), (2, 2, 2, 2)),
        dot_conv_case(
            f"conv2d_{form.name}_odd", (1, 2, 6, 6, 16), (1, 5, 3, 3, 4, 16), form, (2, 1), (1, 0, 1, 2), epilogue=False
        ),
        dot_conv_case(f"conv2d_{form.name}_dilated", (2, 1, 9, 9, 8), (2, 1, 3, 2, 8, 8), form, dilation=(2, 3)),
        dot_conv_case(f"conv2d_{form.name}_long", (1, 64, 4, 4, 8), (2, 64, 3, 3, 8, 8), form, pads=(1, 1, 1, 1)),
        dot_conv_case(f"conv2d_{form.name}_ragged", (1, 2, 3, 13, 16), (4, 2, 3, 3, 16, 16), form, pads=(1, 1, 1, 1)),
        dot_conv_case(f"conv2d_{form.name}_grouped", (1, 4, 6, 6, 8), (4, 2, 3, 3, 8, 8), form, groups=2),
        straddling_case(f"conv2d_{form.name}_straddling", (1, 2, 6, 6, 16), 24, 2, form=form),
        dot_matmul_case(f"matmul_{form.name}_rows", 12, 24, 3, 16, form, bare=False),
        dot_matmul_case(f"matmul_{form.name}_vector", 1, 40, 4, 8, form, bare=True),
        dot_matmul_case(f"matmul_{form.name}_long", 16, 4096, 2, 16, form, bare=False),
    )
)

TAPS = (
    taps_case("depthwise_taps", (1, 2, 8, 8, 16), (3, 3), 1, (1, 1, 1, 1)),
    taps_case("depthwise_taps_strided", (2, 1, 9, 11, 8), (5, 5), 2, (2, 1, 2, 1)),
    taps_case("depthwise_taps_bare", (1, 3, 6, 9, 16), (3, 2), 1, (0, 0, 0, 0)),
    taps_case("depthwise_taps_dilated", (1, 1, 9, 7, 8), (2, 4), 1, (0, 3, 0, 3), 3),
)

LOW_BITS = (
    low_bit_case("low_bit_rows", 12, 128, 3, 16, "s8u4", False, 32),
    low_bit_case("low_bit_vector", 1, 256, 4, 16, "s8u4", True, 32),
    low_bit_case("low_bit_bytes", 7, 64, 5, 8, "s8u8", True, 16),
    low_bit_case("low_bit_floats", 1, 128, 4, 16, "f32u4", True, 64),
    low_bit_case("low_bit_tiles", 32, 64, 2, 16, "s8u4", False, 32, template="low_bit_tiles"),
    low_bit_case("low_bit_tiles_zeros", 17, 128, 3, 16, "s8u4", True, 16, template="low_bit_tiles"),
    low_bit_case("low_bit_tiles_bytes", 16, 64, 2, 16, "s8u8", True, 32, template="low_bit_tiles"),
    low_bit_case("low_bit_panels", 24, 128, 3, 16, "f32u4", False, 32, template="low_bit_panels"),
    low_bit_case("low_bit_panels_zeros", 17, 64, 4, 8, "f32u4", True, 16, template="low_bit_panels"),
    low_bit_case("low_bit_panels_bytes", 20, 96, 2, 16, "f32u8", True, 32, template="low_bit_panels"),
    low_bit_case("low_bit_float_bytes", 4, 128, 2, 16, "f32u8", False, 128),
)

ROWS = (
    relax_case("rows_softmax", "rows", lambda x: op.nn.softmax(x, -1), [(1, 3, 5, 48)], softmax),
    relax_case("rows_softmax_prime", "rows", lambda x: op.nn.softmax(x, -1), [(2, 3, 37)], softmax),
    relax_case("rows_softmax_one", "rows", lambda x: op.nn.softmax(x, -1), [(1, 1000)], softmax),
    relax_case(
        "rows_log_softmax", "rows", lambda x: op.nn.log_softmax(x, -1), [(3, 100)], lambda x: np.log(softmax(x))
    ),
    relax_case(
        "rows_layer_norm",
        "rows",
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]),
        [(1, 6, 96), (96,), (96,)],
        layer_norm,
    ),
    relax_case(
        "rows_rms_norm",
        "rows",
        lambda x, g: op.nn.rms_norm(x, g, axes=[-1]),
        [(2, 4, 40), (40,)],
        lambda x, g: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g,
    ),
    relax_case(
        "rows_norm_tail",
        "rows",
        normalised,
        [(1, 6, 64), (1, 6, 64), (64,)],
        lambda v, x, g: x / np.sqrt(v.mean(-1, keepdims=True) + 1e-5) * g,
    ),
    relax_case(
        "rows_blocked_mean",
        "rows",
        lambda x: op.mean(x, [2, 3], keepdims=True),
        [(1, 6, 5, 7, 16)],
        lambda x: x.mean((2, 3), keepdims=True),
    ),
    relax_case(
        "rows_plain_mean",
        "rows",
        lambda x: op.mean(x, [2, 3], keepdims=True),
        [(1, 6, 7, 7)],
        lambda x: x.mean((2, 3), keepdims=True),
    ),
    relax_case("rows_sum", "rows", lambda x: op.sum(x, [-1]), [(4, 5, 50)], lambda x: x.sum(-1)),
    relax_case("rows_softmax_middle", "rows", lambda x: op.nn.softmax(x, 1), [(2, 6, 5, 8)], lambda x: softmax(x, 1)),
    relax_case(
        "rows_log_softmax_middle",
        "rows",
        lambda x: op.nn.log_softmax(x, 1),
        [(2, 21, 5, 7)],
        lambda x: np.log(softmax(x, 1)),
    ),
    relax_case(
        "rows_centred",
        "rows",
        lambda x: op.subtract(x, op.mean(x, [0, 2, 3], keepdims=True)),
        [(3, 5, 4, 8)],
        lambda x: x - x.mean((0, 2, 3), keepdims=True),
    ),
    relax_case("rows_max_middle", "rows", lambda x: op.max(x, [1]), [(3, 7, 24)], lambda x: x.max(1)),
    relax_case("rows_sum_first", "rows", lambda x: op.sum(x, [0]), [(9, 20)], lambda x: x.sum(0)),
    relax_case("rows_sum_wide", "rows", lambda x: op.sum(x, [0]), [(20, 512)], lambda x: x.sum(0)),
)


def growing(x):
    """Every step reads the last one three times: inlined it would be 3⁶ times as long."""
    for _ in range(6):
        x = op.subtract(op.multiply(op.nn.relu(x), x), x)
    return x


def growing_by_numpy(x):
    for _ in range(6):
        x = np.maximum(x, 0) * x - x
    return x


CHAINS = (
    relax_case(
        "elementwise_growing",
        "elementwise",
        growing,
        [(6, 32)],
        growing_by_numpy,
    ),
    relax_case(
        "elementwise_chain",
        "elementwise",
        lambda x, y: op.exp(op.add(op.nn.relu(x), y)),
        [(3, 7, 10), (7, 1)],
        lambda x, y: np.exp(np.maximum(x, 0) + y),
    ),
    relax_case(
        "elementwise_transpose",
        "elementwise",
        lambda x: op.permute_dims(op.reshape(x, (1, 6, 4, 8)), [0, 2, 1, 3]),
        [(6, 32)],
        lambda x: x.reshape(1, 6, 4, 8).transpose(0, 2, 1, 3),
    ),
    relax_case(
        "elementwise_reversed_tile",
        "elementwise",
        lambda x: op.strided_slice(op.tile(x, (3, 2)), [1], [14], [1], [-1]),
        [(1, 13)],
        lambda x: np.tile(x, (3, 2))[:, 14:1:-1],
    ),
    relax_case(
        "elementwise_concat",
        "elementwise",
        lambda x, y: op.concat([x, y], 1),
        [(1, 2, 3, 3, 16), (1, 1, 3, 3, 16)],
        lambda x, y: np.concatenate([x, y], 1),
    ),
)

GENERIC = (
    relax_case("generic_matmul", "generic", op.matmul, [(12, 18), (18, 20)], lambda x, y: x @ y),
    relax_case("generic_batch_matmul", "generic", op.matmul, [(3, 5, 7), (3, 7, 11)], lambda x, y: x @ y),
    relax_case(
        "generic_instance_norm",
        "generic",
        lambda x, g, b: op.nn.instance_norm(x, g, b, channel_axis=1, axes=[2, 3]),
        [(2, 3, 9, 15), (3,), (3,)],
        instance_norm,
    ),
    relax_case(
        "generic_pool_plain",
        "generic",
        lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2)),
        [(3, 7, 6, 12)],
        lambda x: x.reshape(3, 7, 3, 2, 6, 2).max((3, 5)),
    ),
    relax_case(
        "generic_variance",
        "generic",
        lambda x: op.variance(x, [2, 3], keepdims=True),
        [(4, 6, 22, 1)],
        lambda x: x.var((2, 3), keepdims=True),
    ),
    relax_case(
        "generic_padded_rows",
        "generic",
        lambda x, y: op.nn.pad(op.matmul(x, y), (0, 0, 0, 2, 0, 0), pad_value=0.5),
        [(3, 5, 12), (3, 12, 16)],
        lambda x, y: np.pad(x @ y, ((0, 0), (0, 2), (0, 0)), constant_values=0.5),
    ),
    relax_case("generic_sum_all", "generic", lambda x: op.sum(x), [(36, 34)], lambda x: np.asarray(x.sum())),
)

CASES: tuple[Case, ...] = (
    *CONVOLUTIONS,
    *PRODUCTS,
    *DOTS,
    *TAPS,
    *LOW_BITS,
    *ROWS,
    *CHAINS,
    *GENERIC,
    *CHANNEL_SUMS,
    *RECURRENT,
)
