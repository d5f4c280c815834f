"""One program per template, lowered with its best guess, as text: a change of what is generated is seen in review."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schedules.lower import claim, lower
from schedules.target import Target
from schedules.templates.cpu.cpu_templates import CPU_TEMPLATES
from tests.emulation.narrow_cases import all_cases
from tests.schedules_tests.cases import CASES

TARGET = Target(kind="llvm", isa="avx512", mcpu="skylake-avx512", threads=2)
GOLDEN = {
    "conv2d": "conv2d_1x1",
    "depthwise": "depthwise_3x3",
    "channel_sums": "channel_sums_3x3",
    "matmul": "matmul_rows",
    "low_bit_matmul": "low_bit_vector",
    "low_bit_tiles": "low_bit_tiles",
    "low_bit_panels": "low_bit_panels_zeros",
    "batch_matmul": "batch_matmul_scores",
    "pool": "pool_max",
    "elementwise": "elementwise_chain",
    "rows": "rows_layer_norm",
    "generic": "generic_matmul",
    "recurrent": "recurrent_lstm",
}


def test_every_template_has_a_golden_program() -> None:
    assert sorted(GOLDEN) == sorted(template.name for template in CPU_TEMPLATES.templates)


@pytest.mark.parametrize(
    ("form", "name"),
    [("conv2d_u8s8", "conv2d_u8s8_1x1"), ("conv2d_bf16", "conv2d_bf16_1x1"), ("depthwise_u8s8", "depthwise_taps")],
)
def test_a_convolution_of_short_types(form: str, name: str, golden: Callable[[str, str], None]) -> None:
    """With the dot product of ``TARGET`` in place of its innermost loops."""
    func = next(case.func for case in CASES if case.name == name)
    config = claim(func, TARGET).space.initial[0]
    program = lower(func, config, TARGET).mod.script(show_meta=False)
    golden(f"{form}.txt", f"# {config.to_json()}\n{program}\n")


@pytest.mark.parametrize(
    ("processor", "case"),
    [
        ("neoverse-n1", "conv2d_s8s8"),
        ("neoverse-n2", "conv2d_u8s8m_odd"),
        ("neoverse-n2", "conv2d_bf16m"),
        ("neoverse-n2", "matmul_u8s8m"),
    ],
)
def test_products_of_other_processors(processor: str, case: str, golden: Callable[[str, str], None]) -> None:
    """AArch64's ``sdot``, and the products of two rows at once."""
    target = Target.cpu(processor, 1)
    func = next(own_case.func for own_case in all_cases(target) if own_case.name == case)
    config = claim(func, target).space.initial[0]
    program = lower(func, config, target).mod.script(show_meta=False)
    golden(f"{case}.txt", f"# {config.to_json()}\n{program}\n")


@pytest.mark.parametrize("template", GOLDEN)
def test_best_guess(template: str, golden: Callable[[str, str], None]) -> None:
    func = next(case.func for case in CASES if case.name == GOLDEN[template])
    space = claim(func, TARGET).space
    program = lower(func, space.initial[0], TARGET).mod.script(show_meta=False)
    golden(f"{template}.txt", f"# {space.initial[0].to_json()}\n{program}\n")
