"""NaN, infinities, zeros, denormals and extremes through every operator: ONNX Runtime's results, or a stated exception.

``special_values`` has the operators, the inputs and the exceptions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from autotune.host.machine import host_target
from schedules.lower import loss
from schedules.target import Target
from tests.conformance.special_values.inputs import PATTERNS
from tests.conformance.special_values.operators import GROUPS, cases
from tests.conformance.special_values.trial import Trial, differences, unequal
from tests.models.light import light
from tests.models.transformer import encoder

LEAST_OPERATORS, LEAST_PATTERNS = 60, 20
THREADS = 2
QUICK = ("unary", "binary", "products", "convolutions")
SEEDS = (1, 2, 3)


def check(group: str, target: Target, folder: Path, seed: int | None, assembled: bool = True) -> None:
    chosen = cases(group)
    trial = Trial(chosen.model(), target, folder)
    configs = trial.configs(seed)
    lossy = any(loss(config) for config in configs.values())
    assert not differences(trial, chosen, trial.build(configs, assembled), lossy, seed or 0)


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


SPECIAL = {"NaN": np.nan, "infinity": np.inf, "minus infinity": -np.inf, "3e38": 3e38, "a row of 3e38": 3e38}


def small_encoder() -> onnx.ModelProto:
    return encoder(layers=2, width=64, heads=4, sequence=16)


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], tuple[int, ...]]] = {
    "squeezenet": (lambda: light("squeezenet"), (1, 3, 224, 224)),
    "encoder": (small_encoder, (1, 16, 64)),
}


def check_model(name: str, folder: Path, seed: int | None) -> None:
    """One special value: outputs that are not finite are ONNX Runtime's, each with its sign, and so are the others.

    But for NaN where a transform of Winograd's overflows.
    """
    make, shape = MODELS[name]
    model = make()
    trial = Trial(model, host_target(THREADS), folder)
    configs = trial.configs(seed)
    lossy = any(loss(config) for config in configs.values())
    session = trial.build(configs, assembled=True)
    rng = np.random.default_rng(seed or 0)
    for kind, value in SPECIAL.items():
        x = rng.standard_normal(shape, np.float32)
        rows = x.reshape(-1, shape[-1])
        row = rows[int(rng.integers(len(rows)))]
        row[slice(None) if "row" in kind else int(rng.integers(row.size))] = value
        feed = {model.graph.input[0].name: x}
        (theirs,), (ours,) = trial.reference(feed), session.run(None, feed)
        wrong = unequal(ours, theirs) & ~(np.isnan(ours) & (lossy and "3e38" in kind))
        assert not wrong.any(), f"{kind}: {ours.reshape(-1)[:4]} instead of {theirs.reshape(-1)[:4]}"
        if kind == "NaN":
            assert np.isnan(theirs).any()


@pytest.mark.parametrize("name", MODELS)
def test_one_special_value_in_a_model(name: str, tmp_path: Path) -> None:
    check_model(name, tmp_path, None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", MODELS)
def test_one_special_value_in_a_tuned_model(name: str, seed: int, tmp_path: Path) -> None:
    check_model(name, tmp_path, seed)
