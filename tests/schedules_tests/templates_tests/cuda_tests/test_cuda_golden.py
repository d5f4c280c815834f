"""The CUDA source of every template on a small case is the one that was read and kept in tests/golden.

What the source computes is tested beside it (``test_templates.py``); this shows what a change of a template, or of TVM,
does to it. ``pytest --update-golden`` writes the files anew.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotune.backends.cuda.source import cuda_source
from schedules.lower import BASELINE, claim, lower
from schedules.target import Target
from tests.schedules_tests.templates_tests.cuda_tests.cases import CASES, TENSOR

TARGET = Target.cuda("sm_90")
BY_NAME = {case.name: case for case in (*CASES, *TENSOR)}
KEPT = {
    "cuda_gemm": "conv_3x3",
    "cuda_gemm_grouped": "conv_grouped_odd",
    "cuda_tensor": "float16_conv_1x1",
    "cuda_map": "pool_max",
    "cuda_map_chain": "elementwise_chain",
    "cuda_rows": "rows_softmax",
    "cuda_reduce": "dense_tiny",
    "cuda_recurrent": "recurrent_lstm",
}
"""Golden file → case."""


@pytest.mark.parametrize("file", KEPT)
def test_source(file: str, golden: Callable[[str, str], None]) -> None:
    case = BY_NAME[KEPT[file]]
    claimed = claim(case.func, TARGET)
    assert file.startswith(claimed.template)
    golden(f"{file}.cu", cuda_source(lower(case.func, claimed.space.initial[0], TARGET), TARGET))


def test_untuned_source(golden: Callable[[str, str], None]) -> None:
    golden("cuda_baseline.cu", cuda_source(lower(BY_NAME["conv_1x1"].func, BASELINE, TARGET), TARGET))
