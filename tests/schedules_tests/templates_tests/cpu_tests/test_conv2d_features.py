"""What is known of a convolution's config before it is measured."""

from __future__ import annotations

import numpy as np
import pytest

from schedules.lower import claim
from schedules.target import Target
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import conv_case

TARGET = Target("llvm", isa="avx512", threads=2)


def test_features_are_finite_for_every_config() -> None:
    for case in (case for case in CASES if case.template == "conv2d"):
        space = claim(case.func, TARGET).space
        assert np.isfinite(space.row_features(space.rows)).all(), case.name


def test_each_algorithm_has_initial_configs_and_a_seed() -> None:
    space = claim(conv_case("c", (1, 4, 14, 14, 16), (4, 4, 3, 3, 16, 16), pads=(1, 1, 1, 1)).func, TARGET).space
    assert [config.integer("algorithm") for config in space.initial[:3]] == [4, 2, 0]
    assert {config.integer("algorithm") for config in space.seeds} == {0, 2, 4}
    assert set(space.seeds) <= set(space.initial)
    assert all(space.contains(config) for config in space.initial)


def test_what_a_space_saves_is_what_its_best_algorithm_does_on_whole_tiles() -> None:
    known = Target.cpu("icelake-server", 2)
    space = claim(conv_case("c", (1, 4, 14, 14, 16), (4, 4, 3, 3, 16, 16), pads=(1, 1, 1, 1)).func, known).space
    # F(4, 3) computes 4 × 4 tiles of 16 sums by 36 products, where the direct method needs 9 for each of 14 × 14.
    assert space.saving == pytest.approx(9 * 14 * 14 / (16 * 36))


def test_no_tile_of_one_block_and_few_pixels_reaches_the_peak() -> None:
    known = Target.cpu("icelake-server", 2)
    space = claim(conv_case("c", (1, 8, 2, 2, 16), (1, 8, 1, 1, 16, 16)).func, known).space
    assert space.saving == pytest.approx((1 + 352 / (128 * 5)) / 2)  # 4 of 8 sums, 5 operations in each of 128 steps
