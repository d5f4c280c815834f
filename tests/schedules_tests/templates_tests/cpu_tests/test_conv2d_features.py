"""What is known of a convolution's config before it is measured."""

from __future__ import annotations

import numpy as np

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
