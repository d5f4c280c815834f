"""What was recorded of random layers orders the configs of layers that the fit did not see."""

from __future__ import annotations

import numpy as np
import pytest
import xgboost

from costmodels.template_prior import tree_features
from tests.bench.prior import TREES, Layer, by_kind, fitted, heaps, load_layers, recorded, save_layers

LEFT_OUT = 3
"""Every third layer is judged and not learned from."""


@pytest.fixture(scope="module")
def layers() -> dict[str, list[Layer]]:
    return by_kind(recorded())


def share(latency_s: np.ndarray, chosen: int) -> float:
    return float(latency_s.min() / latency_s[chosen])


@pytest.mark.parametrize("template", ["conv2d", "matmul"])
def test_the_prior_chooses_better_than_the_first_guess(layers: dict[str, list[Layer]], template: str) -> None:
    own = layers[template]
    prior = fitted([layer for number, layer in enumerate(own) if number % LEFT_OUT])
    judged = [layer for layer in own[::LEFT_OUT] if layer.first is not None]
    assert len(judged) > 20
    ours = [share(layer.latency_s, int(np.argmin(prior.slowness(layer.features, layer.extents)))) for layer in judged]
    guessed = [share(layer.latency_s, layer.first or 0) for layer in judged]
    assert np.log(ours).mean() > np.log(guessed).mean()


def test_heaps_are_the_boosters_trees(layers: dict[str, list[Layer]]) -> None:
    some = layers["matmul"][:20]
    table = np.concatenate([tree_features(layer.features, layer.extents) for layer in some])
    wanted = np.concatenate([layer.slowness for layer in some])
    booster = xgboost.train(TREES, xgboost.DMatrix(table, wanted), 5)
    apart = booster.predict(xgboost.DMatrix(table)) - heaps(booster).values(table)
    assert np.ptp(apart) < 1e-5  # but for the base score


def test_layers_are_read_as_they_were_written(layers: dict[str, list[Layer]], tmp_path) -> None:  # type: ignore[no-untyped-def]
    some = layers["conv2d"][:3]
    save_layers(tmp_path / "m.npz", some)
    for ours, theirs in zip(load_layers(tmp_path / "m.npz"), some, strict=True):
        assert (ours.kind, ours.extents, ours.first) == (theirs.kind, theirs.extents, theirs.first)
        assert np.array_equal(ours.latency_s, theirs.latency_s)
