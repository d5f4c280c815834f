"""The set of products that saves most within a bound, against every set there is."""

import itertools
import math

import numpy as np
import pytest

from autotune.tuning.precisions.choose_products import UNITS, choose_products


def best_of_all(gains, errors, bound):
    """The most that any set within the bound saves."""
    return max(
        sum(gains[product] for product in chosen)
        for count in range(len(gains) + 1)
        for chosen in itertools.combinations(gains, count)
        if math.fsum(errors[product] ** 2 for product in chosen) <= bound**2
    )


@pytest.mark.parametrize("seed", range(30))
def test_it_keeps_the_bound_and_saves_what_the_best_set_does(seed):
    rng = np.random.default_rng(seed)
    gains = dict(enumerate(rng.normal(1.0, 1.0, 10)))
    errors = dict(enumerate(rng.lognormal(-5.0, 1.0, 10)))
    bound = float(rng.uniform(0.2, 1.2)) * math.sqrt(sum(error**2 for error in errors.values()))
    chosen = choose_products(gains, errors, bound)
    assert math.fsum(errors[product] ** 2 for product in chosen) <= bound**2
    assert all(gains[product] > 0 for product in chosen)
    # Rounding up costs one unit per product at most.
    assert (
        sum(gains[product] for product in chosen)
        >= best_of_all(gains, errors, bound * math.sqrt(1 - 10 / UNITS)) - 1e-12
    )


def test_a_bound_that_everything_keeps_takes_all_that_are_faster():
    assert choose_products({0: 1.0, 1: -1.0, 2: 0.5}, {0: 0.1, 1: 0.1, 2: 0.1}, 1.0) == {0, 2}


def test_a_product_without_a_finite_error_is_left_out():
    assert choose_products({0: 1.0, 1: 1.0}, {0: math.inf, 1: 0.1}, 0.5) == {1}


def test_no_error_is_allowed():
    assert choose_products({0: 1.0}, {0: 1e-9}, 0.0) == frozenset()
