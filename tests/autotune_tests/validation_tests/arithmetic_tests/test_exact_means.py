"""Means over positions in 64 bits, written out for ``widen``."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.validation.widen import widen
from tests.autotune_tests.validation_tests.test_widen import model_of, run, value

FLOAT = TensorProto.FLOAT


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("shape", [(2, 3, 40), (1, 2, 300, 400)])
def test_instance_norms_are_exact(opset, shape):
    node = helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"], epsilon=1e-3)
    scale, bias = (np.linspace(start, 2.0, shape[1], dtype=np.float32) for start in (0.5, -1.0))
    model = model_of([node], [value("x", FLOAT, shape)], [value("y", FLOAT, shape)], {"s": scale, "b": bias}, opset)
    x = np.random.default_rng(0).standard_normal(shape) + 1.0
    (exact,) = run(widen(model)[0], x=x)
    axes = tuple(range(2, len(shape)))
    epsilon = np.float64(np.float32(1e-3))
    centred = x - x.mean(axes, keepdims=True)
    normal = centred / np.sqrt(x.var(axes, keepdims=True) + epsilon)
    along = (-1, *[1] * len(axes))
    expected = normal * scale.astype(np.float64).reshape(along) + bias.astype(np.float64).reshape(along)
    assert np.abs(exact - expected).max() < 1e-12


@pytest.mark.parametrize("opset", [17, 18])
def test_global_average_pools_are_exact(opset):
    node = helper.make_node("GlobalAveragePool", ["x"], ["y"])
    model = model_of([node], [value("x", FLOAT, (1, 2, 99, 101))], [value("y", FLOAT, (1, 2, 1, 1))], opset=opset)
    x = np.random.default_rng(0).standard_normal((1, 2, 99, 101)) + 5.0
    (exact,) = run(widen(model)[0], x=x)
    assert np.abs(exact - x.mean((2, 3), keepdims=True)).max() < 1e-13
