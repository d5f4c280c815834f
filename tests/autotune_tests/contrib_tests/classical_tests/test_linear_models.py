"""Linear models and support vector machines compute what ONNX Runtime computes."""

import numpy as np
import pytest

from tests.autotune_tests.contrib_tests.classical_tests.classical_cases import X, classical, classifier
from tests.autotune_tests.importer_tests.contrib_cases import floats
from tests.autotune_tests.importer_tests.onnx_cases import rewritten


def listed(*shape, seed=0):
    return [float(value) for value in floats(*shape, seed=seed).reshape(-1)]


LINEAR = [
    classical("LinearRegressor", X, coefficients=listed(4), intercepts=[0.5]),
    classical(
        "LinearRegressor", X, coefficients=listed(3, 4), intercepts=listed(3), targets=3, post_transform="SOFTMAX"
    ),
    *(
        classifier(
            *("LinearClassifier", X),
            coefficients=listed(3, 4),
            intercepts=listed(3),
            classlabels_ints=[4, 7, 9],
            post_transform=kind,
        )
        for kind in ("NONE", "SOFTMAX", "LOGISTIC")
    ),
    *(
        classifier(
            *("LinearClassifier", X),
            coefficients=listed(4),
            intercepts=[0.1],
            classlabels_ints=[3, 5],
            post_transform=kind,
        )
        for kind in ("NONE", "LOGISTIC")
    ),
]
KERNELS = {"LINEAR": [0.0, 0.0, 0.0], "RBF": [0.3, 0.0, 0.0], "POLY": [0.2, 0.5, 3.0], "SIGMOID": [0.2, 0.1, 0.0]}
REGRESSORS = [
    classical(
        *("SVMRegressor", X),
        kernel_type=kind,
        kernel_params=parameters,
        support_vectors=listed(6, 4, seed=1),
        coefficients=listed(6),
        n_supports=6,
        rho=[0.25],
        one_class=one,
    )
    for kind, parameters in KERNELS.items()
    for one in ((0, 1) if kind == "RBF" else (0,))
]


def machine(classes, **more):
    """A classifier of three support vectors per class."""
    return classifier(
        *("SVMClassifier", X),
        kernel_type="RBF",
        kernel_params=[0.3, 0.0, 0.0],
        support_vectors=listed(3 * classes, 4, seed=1),
        coefficients=listed(classes - 1, 3 * classes),
        vectors_per_class=[3] * classes,
        classlabels_ints=list(range(2, 2 + classes)),
        rho=listed(classes * (classes - 1) // 2, seed=2),
        **more,
    )


CHANCES = [(-1.5, 0.2), (-0.3, 0.1), (-0.7, -0.6), (-4.0, 1.0), (-60.0, 0.0)]
"""Slope and offset of Platt's sigmoid: chances near one half, far from it, and at its ends."""

MACHINES = [
    *(machine(classes) for classes in (2, 3, 4)),
    *(machine(2, prob_a=[slope], prob_b=[offset]) for slope, offset in CHANCES),
]


@pytest.mark.parametrize("case", [*LINEAR, *REGRESSORS, *MACHINES], ids=str)
def test_it_computes_what_onnxruntime_computes(case, tmp_path):
    assert np.ptp(X) > 1
    rewritten(case.model(), tmp_path, case.feed())
