"""Verification: what counts as equal, and an artifact that computes something else."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from autotune.interface import TensorSpec
from autotune.validation.allowance import ATOL, RTOL, Allowance
from autotune.validation.reference_runs import Reference
from autotune.validation.verify import _in_order, compare, compare_artifact, complaint, random_inputs, runnable_inputs
from tests.autotune_tests.tiny import tiny_model

X = np.array([1.0, -2.0, 0.0, 1e3], np.float32)


def verdict(ours, theirs):
    return compare("reference", [np.asarray(ours)], [np.asarray(theirs)])


def test_equal_is_exact():
    result = verdict(X, X)
    assert (result.passed, result.max_abs_err, result.max_rel_err) == (True, 0.0, 0.0)


def test_errors_are_the_largest_ones():
    result = verdict(X + np.array([0.0, 0.0, 5e-6, 0.5], np.float32), X)
    assert result.passed
    assert result.max_abs_err == pytest.approx(0.5)
    assert result.max_rel_err == pytest.approx(5e-4)


@pytest.mark.parametrize(
    ("ours", "passed"),
    [
        (X * (1 + 0.9 * RTOL), True),
        (X * (1 + 1.5 * RTOL), False),
        (X + 0.9 * ATOL, True),
        (X + np.array([0, 0, 1.5 * ATOL, 0], np.float32), False),
        (np.array([1.0, -2.0, np.nan, 1e3], np.float32), False),
        (np.array([1.0, -2.0, np.inf, 1e3], np.float32), False),
        (X[:3], False),
        (X.astype(np.float64), False),
    ],
)
def test_tolerances(ours, passed):
    assert verdict(ours, X).passed is passed


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_the_reference_says_too_is_right(value):
    result = verdict([1.0, value], [1.0, value])
    assert (result.passed, result.max_abs_err) == (True, 0.0)


def test_opposite_infinities_differ():
    assert not verdict([np.inf], [-np.inf]).passed


def test_a_refusal_for_nan_says_so():
    result = verdict([1.0, np.nan, np.inf, np.nan], [1.0, 2.0, -np.inf, np.nan])
    assert result.mismatch == "2 of 4 elements of output 0 are NaN or infinite on one side alone"


def test_integers_and_booleans_are_equal_or_not():
    assert verdict(np.array([1, 2]), np.array([1, 2])).passed
    assert not verdict(np.array([1000]), np.array([1001])).passed
    assert not verdict(np.array([True]), np.array([False])).passed


def test_every_output_counts():
    assert not compare("reference", [X, X], [X, X + 1]).passed


def test_inputs_are_random_and_the_same_for_the_same_seed():
    specs = [
        TensorSpec("f", (100,), "float32"),
        TensorSpec("i", (100,), "int64"),
        TensorSpec("b", (100,), "bool"),
        TensorSpec("image", (10000,), "uint8"),
        TensorSpec("quanta", (10000,), "int8"),
        TensorSpec("s", (), "float32"),
    ]
    first, again, other = (random_inputs(specs, seed) for seed in (1, 1, 2))
    for spec in specs:
        assert (str(first[spec.name].dtype), first[spec.name].shape) == (spec.dtype, spec.shape)
        assert np.array_equal(first[spec.name], again[spec.name])
    assert not np.array_equal(first["f"], other["f"])
    assert set(np.unique(first["i"])) == {0, 1}
    assert set(np.unique(first["b"])) == {False, True}
    assert set(np.unique(first["image"])) == set(range(256))
    assert set(np.unique(first["quanta"])) == set(range(-128, 128))


def test_the_right_model_passes(tiny_built):
    assert compare_artifact(tiny_built.artifact, Reference(onnx.load(tiny_built.model))).passed


def test_another_model_s_weights_fail(tiny_built):
    other = tiny_model(seed=1, two_outputs=True)
    result = compare_artifact(tiny_built.artifact, Reference(other), seed=7)
    assert not result.passed
    words = complaint(tiny_built.artifact, result, 7)
    assert re.search(r"largest error .* --seed 7", words)
    assert "\n" not in words


def test_another_shape_is_told_in_words_and_numbers_stay_finite():
    result = compare("reference", [X, X[:3]], [X, X])
    assert (result.passed, result.max_abs_err, result.mismatch) == (
        False,
        0.0,
        "output 1 is float32(3,), not float32(4,)",
    )
    assert "output 1 is float32(3,)" in complaint(Path("a.tuned"), result, 0)
    json.dumps(asdict(result), allow_nan=False)


def test_integers_that_differ_are_counted():
    result = verdict(np.array([1, 2, 3]), np.array([1, 5, 4]))
    assert (result.passed, result.mismatch) == (False, "2 of 3 elements of output 0 differ")


def test_rows_in_another_order_are_no_distance():
    """Of two ways that are right, one with two boxes of one score in each other's place allows no other boxes."""
    boxes, scores = np.array([[0.0], [300.0], [50.0]]), np.array([0.9, 0.4, 0.4 - 1e-9])
    theirs = [boxes.astype(np.float32), scores.astype(np.float32)]
    swapped = [array[[0, 2, 1]] for array in theirs]
    allowed = _in_order(Allowance([boxes, scores], (theirs, swapped)), theirs, [[0, 1]])
    assert allowed.accepts(0, theirs[0])
    assert not allowed.accepts(0, theirs[0] + np.float32(40))


def test_benchmarks_feed_sizes_that_the_reference_runs():
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4,6] x, int64[2] n) => (float[A,B] y) { y = Reshape(x, n) }'
    )
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    specs = [TensorSpec("x", (4, 6), "float32"), TensorSpec("n", (2,), "int64")]
    feed = runnable_inputs(model, specs, 0)
    assert feed["n"].tolist() == [4, 6]
    np.testing.assert_array_equal(feed["x"], random_inputs(specs, 0)["x"])


def test_benchmarks_keep_random_inputs_of_what_no_reference_runs():
    text = '<ir_version: 8, opset_import: ["" : 17, "a" : 1]> g (int64[2] n) => (float[A,B] y) { y = a.Unknown(n) }'
    specs = [TensorSpec("n", (2,), "int64")]
    feed = runnable_inputs(onnx.parser.parse_model(text), specs, 0)
    np.testing.assert_array_equal(feed["n"], random_inputs(specs, 0)["n"])
