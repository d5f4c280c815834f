"""How far right outputs may be from the reference's: what passes, and what is wrong everywhere by little."""

import numpy as np
import pytest

from autotune.validation.allowance import ATOL, RMS_FACTOR, RTOL, Allowance

QUANTUM = 0.05
RNG = np.random.default_rng(0)
X = np.round(RNG.standard_normal(2000) / QUANTUM) * QUANTUM


def flipped(share, seed):
    """X with a quantum more or less in a share of its elements."""
    rng = np.random.default_rng(seed)
    return X + QUANTUM * rng.choice([-1, 0, 1], X.size, p=[share / 2, 1 - share, share / 2])


def softmax(logits):
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def allowance(*samples):
    return Allowance([X], [[sample] for sample in samples])


RIGHT = allowance(flipped(0.05, 1), flipped(0.1, 2))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.2])
def test_a_quantum_here_and_there_is_right(share):
    assert RIGHT.accepts(0, flipped(share, 3))


@pytest.mark.parametrize(
    "wrong",
    [
        X + QUANTUM,
        X - QUANTUM / 4,
        X * 1.02,
        X * 0.98,
        flipped(1.0, 3),
        X + 5 * QUANTUM * (np.arange(X.size) == 7),
        np.where(np.arange(X.size) == 7, np.nan, X),
        np.minimum(X, 1.5),
        X[:-1],
    ],
    ids=[
        "zero point",
        "part of a quantum",
        "scale",
        "small scale",
        "noise",
        "one element",
        "nan",
        "saturation",
        "shape",
    ],
)
def test_what_is_wrong_is_refused(wrong):
    assert not RIGHT.accepts(0, wrong)


def test_well_conditioned_models_keep_the_fixed_tolerance():
    exact = allowance(X * (1 + 1e-8))
    assert exact.accepts(0, X * (1 + 0.9 * RTOL))
    assert not exact.accepts(0, X * (1 + 1.1 * RTOL) + 1.1 * ATOL)


def test_the_factor_is_what_it_says():
    off = X + 1e-2 * (np.arange(X.size) % 2 * 2 - 1)
    apart = allowance(off)
    assert apart.accepts(0, X + 0.9 * RMS_FACTOR * (off - X))
    assert not apart.accepts(0, X + 1.1 * RMS_FACTOR * (off - X))


def test_probabilities_may_err_where_they_are_large():
    """A few logits decide all, and the signs of their errors whether the output looks stretched: 40 were refused once.

    One sample of a few large errors is small by luck in some cases; those are refused still.
    """
    accepted = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        logits = 2 * rng.standard_normal(1000)
        exact, sample, ours = (softmax(logits + noise) for noise in (0.0, *(0.05 * rng.standard_normal((2, 1000)))))
        own_allowance = Allowance([exact], [[sample]])
        accepted += own_allowance.accepts(0, ours)
        assert not own_allowance.accepts(0, softmax(1.3 * logits))
    assert accepted >= 180


def test_every_output_has_its_own_bound():
    two = Allowance([X, X], [[flipped(0.1, 1), X]])
    assert two.accepts(0, flipped(0.1, 2))
    assert not two.accepts(1, flipped(0.1, 2))


def test_a_sample_that_overflows_allows_nothing():
    overflown = np.where(np.arange(X.size) == 3, np.inf, X)
    assert not allowance(overflown).accepts(0, X + QUANTUM)


def test_bytes_are_rounded_numbers_and_wide_integers_are_indices():
    codes = (np.arange(1000) % 200).astype(np.uint8)
    near = np.where(codes % 50 == 0, codes + 1, codes).astype(np.uint8)
    bytes_ = Allowance([codes], [[near]])
    assert bytes_.accepts(0, np.where(codes % 50 == 1, codes - 1, codes).astype(np.uint8))
    assert not bytes_.accepts(0, (codes + 1).astype(np.uint8))
    classes = np.arange(1000)
    other = np.where(classes % 50 == 0, 0, classes)
    assert Allowance([classes], [[other]]).accepts(0, np.where(classes % 50 == 1, 999, classes))
    assert not Allowance([classes], [[other]]).accepts(0, classes + 1)
    assert not Allowance([classes], [[classes]]).accepts(0, other)


def test_text_is_never_nearly_right():
    words = np.array(["a", "b"], object)
    assert not Allowance([words], [[words]]).accepts(0, np.array(["a", "c"], object))


def test_it_says_what_it_rests_on():
    assert RIGHT.bound == "fp64"
    assert "from 64-bit arithmetic, 0.05" in RIGHT.words("onnxruntime")
    apart = Allowance([X], [[flipped(0.1, 1)]], "it has a Loop with a graph of its own")
    assert apart.bound == "spread"
    assert "not in 64 bits: it has a Loop with a graph of its own" in apart.words("onnxruntime")


def test_empty_outputs_are_right():
    empty = np.zeros((0, 4))
    assert Allowance([empty], [[empty]]).accepts(0, empty)
