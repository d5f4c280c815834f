"""Tune a hand-written TIR function: no model, only a matrix product with bias and ReLU.

    python docs/examples/handwritten.py 20
"""

import sys

import numpy as np
from tvm import te

import autotune

ROWS, DEPTH, COLUMNS = 64, 256, 128


def layer():
    """relu(x @ w + b) as three stages; the tuner fuses them."""
    x = te.placeholder((ROWS, DEPTH), name="x")
    w = te.placeholder((DEPTH, COLUMNS), name="w")
    b = te.placeholder((COLUMNS,), name="b")
    k = te.reduce_axis((0, DEPTH), "k")
    product = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="product")
    biased = te.compute((ROWS, COLUMNS), lambda i, j: product[i, j] + b[j], name="biased")
    relu = te.compute((ROWS, COLUMNS), lambda i, j: te.max(biased[i, j], 0.0), name="relu")
    return te.create_prim_func([x, w, b, relu])


def main(seconds):
    """Tune for ``seconds``, check the result against NumPy, and say what was found."""
    tuned = autotune.tune_function(layer(), autotune.Options(budget_s=seconds), weights=(1, 2), name="layer")
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((ROWS, DEPTH), (DEPTH, COLUMNS), (COLUMNS,)))
    out = np.zeros((ROWS, COLUMNS), np.float32)
    tuned(x, w, b, out)
    assert np.allclose(out, np.maximum(x @ w + b, 0), rtol=1e-3, atol=1e-4)
    if tuned.latency_s is not None:
        gflops = tuned.task.flop / tuned.latency_s / 1e9
        print(f"{1e6 * tuned.latency_s:.1f} µs, {gflops:.0f} GFLOPS: {tuned.config.to_json()}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
