from __future__ import annotations

import numpy as np
from scipy.optimize import check_grad

from costmodels.gaussian_process import GaussianProcess, negative_log_posterior


def test_gradient() -> None:
    rng = np.random.default_rng(0)
    inputs, scores = rng.random((25, 4)), rng.standard_normal(25)
    for _ in range(5):
        vector = rng.normal(-0.5, 0.7, size=6)
        error = check_grad(
            lambda v: negative_log_posterior(v, inputs, scores)[0],
            lambda v: negative_log_posterior(v, inputs, scores)[1],
            vector,
        )
        assert error < 1e-4 * np.linalg.norm(negative_log_posterior(vector, inputs, scores)[1])


def test_doubt_grows_away_from_the_data() -> None:
    inputs = np.linspace(0.0, 1.0, 12)[:, None]
    model = GaussianProcess(0).fit(inputs, np.sin(3.0 * inputs[:, 0]))
    near, far = model.predict(np.array([[0.5], [3.0]])).std
    assert far > 3.0 * near


def test_many_rows_are_thinned() -> None:
    rng = np.random.default_rng(1)
    inputs = rng.random((1500, 2))
    model = GaussianProcess(0).fit(inputs, inputs[:, 0])
    assert np.allclose(model.predict(inputs[:50]).mean, inputs[:50, 0], atol=0.05)


def test_extreme_hyperparameters_are_scored_and_do_not_end_a_search() -> None:
    vector = np.array([5.5, 5.5, 5.5, -4.5, -4.5, 4.3, -8.9])  # lengths of 245 and 0.01, s of 74, σ of 0.0001
    for seed in (2, 10, 34, 47):
        rng = np.random.default_rng(seed)
        inputs = np.concatenate([rng.random((40, 3)), rng.integers(0, 2, (40, 2))], axis=1)
        assert np.isfinite(negative_log_posterior(vector, inputs, rng.standard_normal(40))[0])
