"""Spaces and rewrites of convolution: sums in chunks, narrower last tiles, spaces thinned, groups left out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.importer.kernel_passes import describe
from schedules.config import Config
from schedules.lower import claim
from schedules.space import ENUMERATION_LIMIT, Knob
from schedules.target import Target
from schedules.templates.cpu.conv2d import _listable, in_few_copies, left_out
from schedules.templates.cpu.conv2d import _ragged as ragged_widths
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import Case, inputs, run
from tests.schedules_tests.templates_tests.cpu_tests.test_cpu_templates import check_config, sampled

# LLVM cuts vectors to what the CPU has, so these run anywhere: the widths are the templates' business.
WIDE = Target(kind="llvm", isa="avx512", threads=2)


LONG = ["conv2d_long", "conv2d_long_bare", "matmul_long"]
LONG_DOTS = [f"{op}_{form}_long" for op in ("conv2d", "matmul") for form in ("u8s8", "bf16")]


@sampled
@pytest.mark.parametrize("name", [*LONG, *LONG_DOTS])
def test_sums_in_chunks_are_right(name: str, count: int) -> None:
    case = next(case for case in CASES if case.name == name)
    space = claim(case.func, WIDE).space
    whole = max(next(knob for knob in space.knobs if knob.name == "depth").choices)
    chunked = [c for c in space.sample(200, np.random.default_rng(0)) if c.integer("depth") < whole][:count]
    assert len(chunked) == count
    arrays = inputs(case.func)
    for config in chunked:
        result, expected = run(case.func, config, WIDE, arrays), case.expected(*arrays)
        rtol = 2.0**-7 if result.dtype == "bfloat16" else 1e-3  # a bfloat16 may be rounded to either neighbour
        assert np.allclose(result.astype(np.float64), expected.astype(np.float64), rtol, 1e-4), config


@sampled
@pytest.mark.parametrize("case", [case for case in CASES if "ragged" in case.name], ids=lambda case: case.name)
def test_a_narrower_last_tile_is_right(case: Case, count: int) -> None:
    """Every width that does not divide a row, with several blocks of channels beside it."""
    space = claim(case.func, WIDE).space
    columns = space.columns(space.rows)
    width = int(case.func.params[-1].ty.shape[3])
    ragged = space.rows[(width % columns["tw"] != 0) & (columns["algorithm"] == 0)]
    widths = {space.config(row).integer("tw") for row in ragged}
    assert widths, "no divisor of the row is handy"
    rng = np.random.default_rng(0)
    for tw in widths:
        own = [row for row in ragged if space.config(row).integer("tw") == tw]
        for index in rng.choice(len(own), size=min(count, len(own)), replace=False):
            assert check_config(case, space.config(own[index]), WIDE)


def test_a_narrower_last_tile_is_among_the_first_guesses() -> None:
    case = next(case for case in CASES if case.name == "conv2d_ragged")
    assert any(config.integer("tw") == 7 for config in claim(case.func, WIDE).space.initial[:4])


def test_a_space_of_many_divisors_is_thinned_until_it_can_be_listed() -> None:
    names = {"to": 4, "tw": 12, "th": 6, "rows": 9, "unroll": 5, "outer": 2, "pad": 2, "depth": 12}
    knobs = tuple(Knob(name, tuple(range(1, count + 1))) for name, count in names.items())
    thinned = _listable(*knobs)
    assert math.prod(len(knob.choices) for knob in thinned) <= ENUMERATION_LIMIT
    assert thinned[:3] == knobs[:3]
    for before, after in zip(knobs, thinned, strict=True):
        assert set(after.choices) <= set(before.choices)
        assert (after.choices[0], after.choices[-1]) == (before.choices[0], before.choices[-1])
    assert _listable(*knobs[:5]) == knobs[:5]


def test_rows_with_a_handy_divisor_have_no_narrower_tile() -> None:
    assert all(ragged_widths(width, WIDE) == () for width in (14, 28, 55, 7))
    assert ragged_widths(13, WIDE) == (5, 7)
    assert all(2 * (width % tile) >= tile for width in range(1, 300) for tile in ragged_widths(width, WIDE))


def test_long_rows_without_a_handy_divisor_have_narrower_tiles_in_assembly() -> None:
    assert ragged_widths(131, WIDE) == (4, 6, 7, 9, 11, 12)
    assert ragged_widths(131, Target.cpu("neoverse-n1", 1)) == ()
    config = Config("conv2d/4", (("tw", 9), ("to", 2)))
    assert in_few_copies(config, 131).integer("tw") == 1
    assert in_few_copies(config, 122).integer("tw") == 2
    assert in_few_copies(config, 26) is config


def test_operations_of_groups_that_a_block_does_not_touch_are_not_counted() -> None:
    """Three blocks of 8 channels, of 2 groups of 12: the first and the last touch one group of 8 inputs, not both."""
    case = next(case for case in CASES if case.name == "conv2d_straddling")
    assert left_out(case.func) == 2 * (2 * 6 * 6 * 8 * 8)
    assert describe(case.func, "key", "name", "conv2d", ()).flop == 4 * (2 * 6 * 6 * 8 * 8)
    assert not any(left_out(other.func) for other in CASES if "straddling" not in other.name)
