"""NaN, infinities, zeros, denormals and extremes through every operator: ONNX Runtime's results, or a stated exception.

``special_values`` has the operators, the inputs and the exceptions.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.host.machine import host_target
from schedules.lower import loss
from schedules.target import Target
from tests.conformance.special_values.inputs import PATTERNS
from tests.conformance.special_values.operators import GROUPS, cases
from tests.conformance.special_values.trial import Trial, differences

LEAST_OPERATORS, LEAST_PATTERNS = 60, 20
THREADS = 2
QUICK = ("unary", "binary", "products", "sequences")
SEEDS = (1, 2, 3)


def check(group: str, target: Target, folder: Path, seed: int | None, assembled: bool = True) -> None:
    made = cases(group)
    trial = Trial(made.model(), target, folder)
    configs = trial.configs(seed)
    lossy = any(loss(config) for config in configs.values())
    assert not differences(trial, made, trial.build(configs, assembled), lossy, seed or 0)


def test_operators_and_inputs_are_many() -> None:
    assert len(set().union(*(cases(group).operators for group in GROUPS))) >= LEAST_OPERATORS
    assert len(PATTERNS) >= LEAST_PATTERNS


@pytest.mark.parametrize("group", QUICK)
def test_kernels_as_they_ship(group: str, tmp_path: Path) -> None:
    check(group, host_target(THREADS), tmp_path, SEEDS[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("group", GROUPS)
def test_random_configs_as_they_ship(group: str, seed: int, tmp_path: Path) -> None:
    check(group, host_target(THREADS), tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, *SEEDS[:2]])
@pytest.mark.parametrize("group", GROUPS)
def test_compiled_kernels(group: str, seed: int | None, tmp_path: Path) -> None:
    """Untuned ones, and those that ship as assembly where the machine has an assembler."""
    check(group, host_target(THREADS), tmp_path, seed, assembled=False)


@pytest.mark.slow
@pytest.mark.isa("avx2")
@pytest.mark.parametrize("group", GROUPS)
def test_kernels_of_a_narrower_machine(group: str, tmp_path: Path) -> None:
    check(group, replace(host_target(THREADS), isa="avx2", mcpu="haswell"), tmp_path, SEEDS[0])
