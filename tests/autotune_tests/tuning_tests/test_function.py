"""The tuner on a hand-written TIR function."""

import numpy as np
import pytest
from tvm import te

from autotune.options import Options
from autotune.tuning.function import tune_function
from schedules.vocabulary.errors import UsageError


def layer(rows=32, depth=64, columns=48):
    x, w = te.placeholder((rows, depth), name="x"), te.placeholder((depth, columns), name="w")
    k = te.reduce_axis((0, depth), "k")
    product = te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="product")
    relu = te.compute((rows, columns), lambda i, j: te.max(product[i, j], 0.0), name="relu")
    return te.create_prim_func([x, w, relu])


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    options = Options(trials=4, threads=1, searcher="random", log=tmp_path_factory.mktemp("log") / "t.db")
    return tune_function(layer(), options, weights=(1,), name="layer"), options


def arrays():
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((32, 64), (64, 48)))
    return x, w, np.zeros((32, 48), np.float32)


def test_it_computes_what_was_written(tuned):
    function, _ = tuned
    assert function.latency_s is not None
    x, w, out = arrays()
    function(x, w, out)
    np.testing.assert_allclose(out, np.maximum(x @ w, 0), rtol=1e-3, atol=1e-4)


def test_arrays_may_lie_anywhere(tuned):
    function, _ = tuned
    x, w, _ = arrays()
    out = np.zeros(32 * 48 + 1, np.float32)[1:].reshape(32, 48)
    function(np.asfortranarray(x), w[:, :], out)
    np.testing.assert_allclose(out, np.maximum(x @ w, 0), rtol=1e-3, atol=1e-4)


def test_what_was_measured_is_not_measured_again(tuned):
    function, options = tuned
    again = tune_function(layer(), options, weights=(1,), name="layer")
    assert (again.trials, again.config) == (function.trials, function.config)


def test_wrong_arrays_are_told(tuned):
    function, _ = tuned
    x, w, out = arrays()
    with pytest.raises(UsageError, match="takes 3 arrays, got 2"):
        function(x, w)
    with pytest.raises(UsageError, match=r"array 1 of layer has shape \(48, 64\)"):
        function(x, w.T, out)


def test_what_is_no_function_is_told():
    with pytest.raises(UsageError, match="make one with TVMScript or te"):
        tune_function("matmul")
