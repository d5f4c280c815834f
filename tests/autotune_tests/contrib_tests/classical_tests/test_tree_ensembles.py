"""Ensembles of trees compute what ONNX Runtime computes."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from schedules.vocabulary.errors import UnsupportedError
from tests.autotune_tests.contrib_tests.classical_tests.classical_cases import (
    classical,
    classifier,
    grown,
    tree_attributes,
)
from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.contrib_cases import floats

X = floats(9, 5)
HOLES = np.where(np.random.default_rng(0).random(X.shape) < 0.3, np.nan, X).astype(np.float32)
SEVERAL = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def regressor(x, modes=("BRANCH_LEQ",), targets=1, **more):
    trees = tree_attributes(grown(6, 4, 5, modes), "target", tuple(range(targets)), -1)
    return classical("TreeEnsembleRegressor", x, n_targets=targets, **trees, **more)


def leaves_alone(x):
    trees = tree_attributes([[{"mode": "LEAF"}] for _ in range(3)], "target", (0, 1), 1)
    return classical("TreeEnsembleRegressor", x, n_targets=2, **trees)


def forest_classifier(labels, ids, sign, **more):
    trees = tree_attributes(grown(6, 4, 5), "class", ids, sign)
    return classifier("TreeEnsembleClassifier", X, classlabels_int64s=labels, **trees, **more)


CASES = [
    regressor(X),
    regressor(HOLES),
    leaves_alone(X),
    regressor(X, SEVERAL, targets=3, base_values=[0.5, 1.0, -1.0]),
    regressor(X.astype(np.float64)),
    *(regressor(X, aggregate_function=kind) for kind in ("AVERAGE", "MIN", "MAX")),
    *(regressor(X, targets=targets, post_transform="LOGISTIC") for targets in (1, 2)),
    forest_classifier([3, 5, 9], (0, 1, 2), 1),
    forest_classifier([3, 5, 9], (0, 1, 2), -1, post_transform="SOFTMAX", base_values=[0.5, 0.25, 0.0]),
    *(forest_classifier([3, 5, 9], (0, 2), 1, post_transform=kind) for kind in ("SOFTMAX", "SOFTMAX_ZERO")),
    forest_classifier([0, 1], (0, 1), 1),
    forest_classifier([0, 1], (1,), 1),
    forest_classifier([0, 1], (0,), -1, post_transform="LOGISTIC", base_values=[0.3]),
    forest_classifier([0, 1], (0,), -1, post_transform="LOGISTIC"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_computes_what_onnxruntime_computes(case, tmp_path):
    assert close(*run(case.model(), tmp_path, case.feed()))


@pytest.mark.parametrize("opset", [8, 9, 11])
@pytest.mark.parametrize("case", [CASES[0], CASES[-2]], ids=str)
def test_old_standard_operators_beside_it(case, opset, tmp_path):
    """Converters write the oldest version that suffices."""
    model = replace(case, opset=opset, version=1).model()
    for value in model.graph.output[-1:]:
        model.graph.node.append(helper.make_node("Identity", [value.name], ["last"]))
        value.name = "last"
    assert close(*run(model, tmp_path, case.feed()))


def test_a_feature_that_rows_do_not_have_is_refused(tmp_path):
    case = regressor(floats(4, 3))  # its trees read five
    with pytest.raises(UnsupportedError, match=r"its trees read features 0 to 4, and its rows have 3"):
        imported(case.model(), tmp_path)
