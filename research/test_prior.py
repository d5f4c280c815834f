"""What was recorded of random layers orders the configs of layers that the fit did not see."""

from __future__ import annotations

import numpy as np
import pytest
import xgboost

from costmodels.posterior import TemplatePosterior, tree_features
from costmodels.surrogate import bend
from research.prior import TREES, UNRECORDED, Layer, by_isa, by_kind, fitted, heaps, load_layers, recorded, save_layers

FOLDS = 3
"""One layer of this many judges what was learned from the others."""


@pytest.fixture(scope="module")
def layers() -> dict[str, dict[str, list[Layer]]]:
    return by_kind(recorded())


def share(latency_s: np.ndarray, chosen: int) -> float:
    return float(latency_s.min() / latency_s[chosen])


def judged(posterior: TemplatePosterior, own: list[Layer], count: int = 1) -> tuple[float, float]:
    """Mean ln share of the fastest of the ``count`` best-liked configs, and of the template's first guess."""
    ours, guessed = [], []
    for layer in own:
        if layer.first is not None:
            liked = np.argsort(posterior.slowness(layer.features, layer.extents), kind="stable")[:count]
            ours.append(max(np.log(share(layer.latency_s, int(place))) for place in liked))
            guessed.append(np.log(share(layer.latency_s, layer.first)))
    assert len(ours) > 20
    return float(np.mean(ours)), float(np.mean(guessed))


@pytest.mark.slow
@pytest.mark.parametrize("template", ["conv2d", "matmul"])
def test_the_posterior_chooses_better_than_the_first_guess(
    layers: dict[str, dict[str, list[Layer]]], template: str
) -> None:
    machines = layers[template]
    part = {name: [x for n, x in enumerate(own) if n % FOLDS] for name, own in machines.items()}
    shipped = by_isa(fitted(part), part)
    for own in machines.values():
        ours, guessed = judged(shipped[own[0].isa], own[::FOLDS])
        assert ours > guessed


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["znver3", "znver4", "znver5"])
@pytest.mark.parametrize("template", ["conv2d", "matmul"])
def test_a_machine_left_out_has_better_guesses_than_the_first(
    layers: dict[str, dict[str, list[Layer]]], template: str, machine: str
) -> None:
    """Three guesses count: with one alone a foreign ``conv2d`` ties with the template's first guess on AVX-512."""
    machines = layers[template]
    alone = fitted({other: own for other, own in machines.items() if other != machine})[UNRECORDED]
    ours, guessed = judged(alone, machines[machine], 3)
    assert ours > guessed + 0.05


def test_heaps_are_the_boosters_trees(layers: dict[str, dict[str, list[Layer]]]) -> None:
    some = layers["matmul"]["znver4"][:20]
    table = np.concatenate([tree_features(layer.features, layer.extents) for layer in some])
    wanted = np.concatenate([-bend(layer.rows.scores) for layer in some])
    booster = xgboost.train(TREES, xgboost.DMatrix(table, wanted), 5)
    apart = booster.predict(xgboost.DMatrix(table)) - heaps(booster).values(table)
    assert np.ptp(apart) < 1e-5  # but for the base score


def test_layers_are_read_as_they_were_written(layers: dict[str, dict[str, list[Layer]]], tmp_path) -> None:  # type: ignore[no-untyped-def]
    some = layers["conv2d"]["znver4"][:3]
    save_layers(tmp_path / "m.npz", some)
    for ours, theirs in zip(load_layers(tmp_path / "m.npz"), some, strict=True):
        assert (ours.kind, ours.extents, ours.first) == (theirs.kind, theirs.extents, theirs.first)
        assert np.array_equal(ours.latency_s, theirs.latency_s)
