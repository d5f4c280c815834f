"""Products by weights of few bits: every config of a small space against NumPy, and the space's limits."""

from __future__ import annotations

import numpy as np
import pytest

from schedules.config import Config
from schedules.lower import BASELINE, claim, lower
from schedules.target import Target
from tests.schedules_tests.programs import inputs, low_bit_case, run

WIDE = Target("llvm", isa="avx512", threads=2)
FORMS = ("s8u4", "s8u8", "f32u4", "f32u8")


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [1, 6])
def test_configs_are_exact(rows: int, form: str, zeros: bool) -> None:
    """On the plainest processor, which any machine is."""
    case = low_bit_case("small", rows, 64, 2, 8, form, zeros, 32)
    target = Target("llvm", isa="generic", threads=2)
    arrays = inputs(case.func)
    expected = case.expected(*arrays)
    space = claim(case.func, target).space
    configs = [BASELINE, *space.initial[:3], space.config(space.rows[-1])]
    for config in configs:
        result = run(case.func, config, target, arrays)
        assert np.abs(result - expected).max() <= 1e-5 * np.abs(expected).max(), config


def test_activations_of_zero_are_zero() -> None:
    case = low_bit_case("zero", 2, 64, 2, 8, "s8u4", True, 32)
    arrays = inputs(case.func)
    arrays[0][...] = 0
    target = Target("llvm", isa="generic", threads=2)
    config = claim(case.func, target).space.initial[0]
    assert np.array_equal(run(case.func, config, target, arrays), case.expected(*arrays))


def test_tiles_fit_the_register_file_and_divide_their_rows() -> None:
    space = claim(low_bit_case("m", 48, 256, 12, 16, "s8u4", False, 32).func, WIDE).space
    columns = space.columns(space.rows)
    assert (columns["tm"] * columns["tn"] <= WIDE.vector_registers - 4).all()
    assert (columns["rows"] % columns["tm"] == 0).all()


@pytest.mark.parametrize("tn", [1, 2])
@pytest.mark.parametrize(("form", "steps", "groups_ahead"), [("s8u4", 4, 4), ("s8u8", 8, 2)])
def test_a_vector_asks_for_later_groups_of_its_own_panels(form: str, steps: int, groups_ahead: int, tn: int) -> None:
    """Beyond the last group of a panel for the first ones of the panel that takes its place in the next job."""
    case = low_bit_case("ahead", 1, 256, 4, 16, form, False, 32)
    space = claim(case.func, WIDE).space
    knobs = {"tm": 1, "tn": tn, "rows": 1, "unroll": 1, "outer": 0, "ahead": 1024}
    config = Config(f"low_bit_matmul/{space.version}", tuple(knobs.items()))
    text = str(lower(case.func, config, WIDE).mod["main"])
    assert text.count("llvm.prefetch") == tn * (steps + 1)
    assert f"+ T.int64({groups_ahead})" in text
    if tn > 1:
        assert text.count(f"< T.int64(8), T.int64(0), T.int64({8 * (tn - 1)}))") == tn * (steps + 1)


def test_many_rows_ask_for_nothing() -> None:
    space = claim(low_bit_case("rows", 4, 256, 4, 16, "s8u4", False, 32).func, WIDE).space
    assert set(space.columns(space.rows)["ahead"]) == {0}
