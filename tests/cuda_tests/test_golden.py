"""One kernel per template as CUDA source: a change of what is generated is seen in review."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotune.cuda.source import cuda_source
from schedules.lower import BASELINE, claim, lower
from schedules.target import Target
from schedules.templates.cuda_catalog import CUDA_TEMPLATES
from tests.cuda_tests.cases import CASES, HALVES

TARGET = Target.cuda("sm_90")
GOLDEN = {
    "cuda_gemm": "conv_3x3",
    "cuda_tensor": "half_conv_3x3",
    "cuda_map": "pool_average_edges",
    "cuda_rows": "rows_softmax",
    "cuda_generic": "generic_softmax_axis",
}


def source(name: str, untuned: bool = False) -> str:
    func = next(case.func for case in (*CASES, *HALVES) if case.name == name)
    config = BASELINE if untuned else claim(func, TARGET).space.first[0]
    return f"// {config.to_json()}\n{cuda_source(lower(func, config, TARGET), TARGET)}"


def test_every_template_has_a_golden_kernel() -> None:
    assert sorted(GOLDEN) == sorted(template.name for template in CUDA_TEMPLATES)


@pytest.mark.parametrize("template", GOLDEN)
def test_best_guess(template: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{template}.cu", source(GOLDEN[template]))


def test_untuned(golden: Callable[[str, str], None]) -> None:
    golden("cuda_baseline.cu", source("rows_sum", untuned=True))
