"""Operators that ONNX's evaluator uses instead of its own."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from autotune.validation.reference_runs import reference_outputs
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


@pytest.mark.parametrize("size", [1, 3, 5])
def test_response_norms_of_odd_sizes_are_those_of_onnx_runtime(size):
    from onnx.reference import ReferenceEvaluator

    from autotune.validation.arithmetic.evaluator_operators import LRN

    node = helper.make_node("LRN", ["x"], ["y"], size=size, alpha=0.3, beta=0.6, bias=1.5)
    model = model_of([node], [value("x", (2, 6, 4, 3))], ["y"])
    x = 3 * np.random.default_rng(0).standard_normal((2, 6, 4, 3)).astype(np.float32)
    (ours,) = ReferenceEvaluator(model, new_ops=[LRN]).run(None, {"x": x})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(ours, session.run(None, {"x": x})[0], 1e-5, 1e-6)


def test_an_even_size_which_onnx_runtime_refuses_is_verified():
    node = helper.make_node("LRN", ["x"], ["y"], size=4, alpha=0.4, beta=0.6, bias=2.0)
    model = onnx.shape_inference.infer_shapes(model_of([node], [value("x", (1, 7, 2, 3), TensorProto.FLOAT)], ["y"]))
    x = 3 * np.random.default_rng(1).standard_normal((1, 7, 2, 3)).astype(np.float32)
    padded = np.pad(x**2, [(0, 0), (1, 2), (0, 0), (0, 0)])
    sums = sum(padded[:, start : start + 7] for start in range(4))
    name, (theirs,) = reference_outputs(model, {"x": x})
    assert name.startswith("onnx.reference")
    np.testing.assert_allclose(theirs, x / (2 + 0.4 / 4 * sums) ** 0.6, 1e-5, 1e-6)
