"""Kernels that differ in numbers alone are one kernel and one task."""

import numpy as np
import onnxruntime
import pytest

from tests.autotune_tests.importer_tests.built import imported, run_ours
from tests.models.builder import Builder


def scaled(factors, exponents=()):
    """As many products of one size as ``factors``, each times its factor, or raised to its exponent."""
    b = Builder("scaled")
    x = b.input("x", (4, 16))
    for place, factor in enumerate(factors):
        x = b.op("Tanh", b.op("Mul", b.op("MatMul", x, b.weight(16, 16)), b.constant(np.float32(factor))))
        if exponents:
            x = b.op(
                "Tanh", b.op("Pow", b.op("Abs", b.op("MatMul", x, b.weight(16, 16))), b.constant(exponents[place]))
            )
    return b.model(0, y=x)


def products(program):
    return [task for task in program.tasks if task.template == "matmul"]


@pytest.mark.parametrize(("factors", "count"), [((0.5, 0.25, 0.125), 1), ((0.5, 0.5, 0.5), 0)])
def test_layers_share_a_kernel_and_each_has_its_number(factors, count, tmp_path):
    model = scaled(factors)
    (task,) = products(imported(model, tmp_path))
    assert task.weight == 3
    assert task.shapes.count((count,)) == count, "numbers that are equal everywhere stay in the kernel"
    assert len(task.numbers) == count
    assert set(task.numbers) <= set(factors), "a candidate is checked with those of one of them"
    feed = {"x": np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)[0]
    np.testing.assert_allclose(run_ours(model, tmp_path, feed)[0], expected, 1e-5, 1e-5)


def test_an_exponent_stays_a_number_of_its_kernel(tmp_path):
    """A square is one product; a power of an unknown exponent is a logarithm and an exponential."""
    tasks = products(imported(scaled((0.5, 0.5), (2.0, 3.0)), tmp_path))
    assert all((1,) not in task.shapes for task in tasks)
