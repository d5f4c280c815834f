"""Products of bfloat16 and of bytes in assembly, and of floats that become fp16: the compiler's sums and types."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import te

from schedules.config import Config
from schedules.lower import assembly, claim
from schedules.templates.cpu.matmul import matmul
from schedules.templates.instructions.dots import BF16, U8S8
from tests.conftest import cpu_features
from tests.schedules_tests.cases import DOTS
from tests.schedules_tests.programs import Case, dot_conv_case, dot_matmul_case, dtypes, from_te, inputs, run, shapes
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    TARGET,
    covering,
    is_near,
    run_by_tvm,
    run_watched,
    runs_here,
    text_of,
)

SHORT = replace(TARGET, mcpu="cooperlake")
"""A processor with both instructions, and without tiles."""

needs_dots = pytest.mark.skipif(
    not {"avx512_vnni", "avx512_bf16"} <= cpu_features(), reason="this CPU lacks avx512_vnni or avx512_bf16"
)
CONFIGS, COMPILED = 6, 2

CASES = {
    case.name: case
    for case in (
        *(case for case in DOTS if shapes(case.func)[-1][-1] == 16 or case.template == "matmul"),
        dot_conv_case("conv2d_u8s8_uneven", (2, 2, 7, 9, 16), (4, 2, 3, 2, 16, 16), U8S8, (2, 1), (1, 0, 2, 3), (1, 2)),
        dot_conv_case("conv2d_bf16_uneven", (2, 2, 7, 9, 16), (4, 2, 3, 2, 16, 16), BF16, (2, 1), (1, 0, 2, 3), (1, 2)),
        dot_matmul_case("matmul_u8s8_tiles", 28, 64, 28, 16, U8S8, bare=False),
        dot_matmul_case("matmul_bf16_tiles", 28, 64, 28, 16, BF16, bare=True),
        dot_matmul_case("matmul_u8s8_vector", 1, 384, 6, 16, U8S8, bare=True),
        dot_matmul_case("matmul_bf16_vector", 1, 192, 6, 16, BF16, bare=False),
    )
}
"""Name → a convolution or product; what has no vectors of 16 sums, or blocks that groups share, has no kernels."""


def written(case: Case) -> list[Config]:
    """Configs of a case whose kernels are written."""
    space = claim(case.func, SHORT).space
    fixed = {"algorithm": 0} if any(knob.name == "algorithm" for knob in space.knobs) else {}
    return [
        config
        for config in covering(case.func, 2 * CONFIGS, target=SHORT, **fixed)
        if assembly(case.func, config, SHORT, "k")
    ]


@runs_here
@needs_dots
@pytest.mark.parametrize("name", CASES)
def test_it_is_right(name: str) -> None:
    case = CASES[name]
    arrays, shape, dtype = inputs(case.func), shapes(case.func)[-1], dtypes(case.func)[-1]
    configs, expected = written(case)[:CONFIGS], case.expected(*arrays).astype(np.float64)
    if not configs:
        assert "straddling" in name or "odd" in name or shapes(case.func)[1][2] == 8
        return
    for number, config in enumerate(configs):
        text = text_of(case.func, config, target=SHORT)
        result = run_watched(text, arrays, shape, 1 + number % 3, dtype).astype(np.float64)
        if dtype.kind in "iu":
            assert np.array_equal(result, expected), config.to_json()
        else:
            assert is_near(result, expected, 2.0**-7 if dtype == "bfloat16" else 1e-3), config.to_json()
        if number < COMPILED:
            compiled = run(case.func, config, SHORT, arrays).astype(np.float64)
            assert np.array_equal(result, compiled) or is_near(result, compiled, 2.0**-8), config.to_json()
            again = run_by_tvm(text, arrays, shape, 2, dtype=dtype)
            assert np.array_equal(again.astype(np.float64), result), config.to_json()


@runs_here
@pytest.mark.parametrize("rows", [28, 37])
def test_results_in_fp16_are_rounded_after_every_step(rows: int) -> None:
    """Products of fp16 models, also where no tile divides the rows, have the compiler's bits."""
    x, weight = te.placeholder((rows, 64), name="x"), te.placeholder((3, 64, 16), name="weight")
    more = te.placeholder((rows, 48), "float16", name="more")
    out = matmul(x, weight)
    short = te.compute(out.shape, lambda *i: out(*i).astype("float16"), name="short")
    total = te.compute(out.shape, lambda *i: short(*i).astype("float32") + more(*i).astype("float32"), name="total")
    func = from_te(x, weight, more, te.compute(out.shape, lambda *i: total(*i).astype("float16"), name="result"))
    arrays = inputs(func)
    product = arrays[0] @ arrays[1].transpose(1, 0, 2).reshape(64, 48)
    expected = (product.astype(np.float16).astype(np.float32) + arrays[2].astype(np.float32)).astype(np.float16)
    tiles = set()
    for config in covering(func, 2 * CONFIGS, depth=64):
        text = text_of(func, config)
        result = run_watched(text, arrays, (rows, 48), 2, np.dtype(np.float16))
        assert np.array_equal(result, run(func, config, TARGET, arrays)), config.to_json()
        assert is_near(result.astype(np.float64), expected.astype(np.float64), 2.0**-9)
        tiles.add(rows % config.integer("tm") == 0)
    assert tiles == ({True} if rows == 28 else {True, False})


def test_without_their_instructions_they_are_left_to_the_compiler() -> None:
    for case in CASES.values():
        config = covering(case.func, 1)[0]
        assert assembly(case.func, config, TARGET, "k") == ""
