"""Cases for processors with vectors of 4 numbers: those of every template, in blocks of 4 channels or columns."""

from __future__ import annotations

from schedules.target import Target
from schedules.templates.instructions.dots import BF16, S8S8, U8S8, DotForm, pair_form
from tests.schedules_tests.cases import CHAINS, GENERIC, ROWS
from tests.schedules_tests.programs import (
    Case,
    batch_case,
    conv_case,
    depthwise_case,
    dot_conv_case,
    dot_matmul_case,
    matmul_case,
    pool_case,
    straddling_case,
)


def blocked_cases(b: int) -> tuple[Case, ...]:
    """Cases of the templates whose vectors are blocks of ``b`` channels or columns."""
    dots = (
        case
        for form in (U8S8, S8S8, BF16)
        for case in (
            dot_conv_case(f"conv2d_{form.name}", (1, 8, 6, 10, b), (6, 8, 1, 1, b, b), form),
            dot_conv_case(f"conv2d_{form.name}_3x3", (1, 4, 8, 7, b), (4, 4, 3, 3, b, b), form, pads=(1, 1, 1, 1)),
            dot_conv_case(f"conv2d_{form.name}_first", (1, 1, 9, 9, 4), (2, 1, 5, 5, 4, b), form, (2, 2), (2, 2, 2, 2)),
            dot_matmul_case(f"matmul_{form.name}", 12, 24, 6, b, form, bare=False),
            dot_matmul_case(f"matmul_{form.name}_vector", 1, 40, 4, b, form, bare=True),
        )
    )
    return (
        conv_case("conv2d_1x1", (1, 8, 6, 10, b), (6, 8, 1, 1, b, b)),
        conv_case("conv2d_3x3", (1, 4, 8, 7, b), (4, 4, 3, 3, b, b), pads=(1, 1, 1, 1)),
        conv_case("conv2d_first", (1, 3, 13, 13), (4, 3, 5, 5, 1, b), (2, 2), (2, 2, 2, 2)),
        conv_case("conv2d_ragged", (1, 4, 3, 13, b), (4, 4, 1, 1, b, b)),
        conv_case("conv2d_dilated", (2, 2, 9, 9, b), (2, 2, 3, 2, b, b), dilation=(2, 3), epilogue=False),
        conv_case("conv2d_long", (1, 64, 4, 4, b), (4, 64, 3, 3, b, b), pads=(1, 1, 1, 1)),
        conv_case("conv2d_grouped", (1, 4, 6, 6, b), (4, 2, 3, 3, b, b), pads=(1, 1, 1, 1), groups=2),
        straddling_case("conv2d_straddling", (1, 3, 6, 6, b), 3 * b // 2, 2),
        straddling_case("conv2d_straddling_shuffled", (1, 3, 6, 6, b), 3 * b // 2, 2, dealt=3),
        depthwise_case("depthwise_3x3", (1, 4, 8, 8, b), (3, 3), 1, (1, 1, 1, 1), 1),
        depthwise_case("depthwise_5x5_strided", (2, 2, 9, 11, b), (5, 5), 2, (2, 1, 2, 1), 1),
        pool_case("pool_max", (1, 4, 9, 9, b), "max", 3, 2, (1, 1, 1, 1), False),
        pool_case("pool_average", (1, 2, 7, 7, b), "avg", 3, 1, (1, 1, 1, 1), False),
        matmul_case("matmul_rows", 12, 24, 6, b),
        matmul_case("matmul_vector", 1, 40, 8, b),
        matmul_case("matmul_long", 16, 1536, 4, b),
        batch_case("batch_matmul_scores", "bmhk,bnhk->bhmn", (1, 8, 3, 12), (1, 32, 3, 12), b, True),
        batch_case("batch_matmul_odd", "bhmk,bkhn->bmhn", (1, 2, 9, 11), (1, 11, 2, 16), b, False),
        batch_case("batch_matmul_bf16", "bmhk,bnhk->bhmn", (1, 7, 3, 12), (1, 24, 3, 12), b, True, "bfloat16"),
        *dots,
    )


def pair_cases(form: DotForm) -> tuple[Case, ...]:
    """Cases of a form of two rows, one with an odd number of columns; its blocks hold whole dot products of bytes."""
    b, q = (8, form.depth) if form.weight == "int8" else (4, form.depth)
    return (
        dot_conv_case(f"conv2d_{form.name}", (1, 8, 6, 10, b), (6, 8, 1, 1, b, b), form),
        dot_conv_case(f"conv2d_{form.name}_odd", (1, 4, 8, 7, b), (4, 4, 3, 3, b, b), form, pads=(1, 1, 1, 1)),
        dot_conv_case(f"conv2d_{form.name}_rows", (1, 4, 9, 8, b), (2, 4, 3, 3, b, b), form, (2, 1), (1, 1, 1, 1)),
        dot_conv_case(f"conv2d_{form.name}_bare", (2, 2, 4, 6, b), (2, 2, 2, 1, b, b), form, epilogue=False),
        dot_matmul_case(f"matmul_{form.name}", 12, 3 * q, 6, b, form, bare=False),
        dot_matmul_case(f"matmul_{form.name}_bare", 2, 5 * q, 4, b, form, bare=True),
        dot_conv_case(
            f"conv2d_{form.name}_halves", (1, 4, 4, 6, 8), (3, 4, 3, 3, 8, 8), single(form), pads=(1, 1, 1, 1)
        ),
        dot_matmul_case(f"matmul_{form.name}_halves", 3, 40, 4, 8, single(form), bare=False),
    )


def single(form: DotForm) -> DotForm:
    """The form of one row of the same types."""
    return next(other for other in (U8S8, BF16) if other.data == form.data)


def all_cases(target: Target) -> tuple[Case, ...]:
    """Those and the cases of the other templates, which find their vectors themselves."""
    pairs = (pair for form in (U8S8, BF16) if (pair := pair_form(form, target)) is not None)
    paired = (case for pair in pairs for case in pair_cases(pair))
    return (*blocked_cases(target.lanes()), *paired, *ROWS, *CHAINS, *GENERIC)
