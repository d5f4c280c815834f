"""Steps of optimisers compute what ONNX's own reference computes; ONNX Runtime has no kernels for them."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from autotune.importer.onnx_model.load import load_model
from autotune.importer.onnx_model.simplify import simplify
from autotune.importer.operators.classical.training_steps import TRAINING
from tests.autotune_tests.importer_tests.onnx_cases import value, written

RNG = np.random.default_rng(0)
MEANS = {"alpha": 0.95, "beta": 0.85, "epsilon": 1e-3}
CASES = [
    ("Adagrad", 1, {"decay_factor": 0.1, "norm_coefficient": 0.01, "epsilon": 1e-3}, 3),
    ("Adam", 2, {**MEANS, "norm_coefficient": 0.01, "norm_coefficient_post": 0.1}, 3),
    ("Adam", 2, MEANS, 0),
    ("Momentum", 1, {"alpha": 0.95, "beta": 0.1, "norm_coefficient": 0.01, "mode": "standard"}, 0),
    ("Momentum", 1, {"alpha": 0.95, "beta": 0.1, "norm_coefficient": 0.01, "mode": "nesterov"}, 3),
]


@pytest.mark.parametrize(("kind", "states", "attributes", "time"), CASES)
def test_a_step_of_two_tensors(kind, states, attributes, time, tmp_path):
    names = [f"{group}{index}" for group in "xgvh"[: 2 + states] for index in (1, 2)]
    made = [f"new_{name}" for name in names if not name.startswith("g")]
    node = helper.make_node(kind, ["r", "t", *names], made, domain=TRAINING, **attributes)
    inputs = [value("r", ()), value("t", (), TensorProto.INT64), *(value(name, (2, 3)) for name in names)]
    graph = helper.make_graph([node], "step", inputs, [value(name, (2, 3)) for name in made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(TRAINING, 1)], ir_version=9)
    feed = {"r": np.float32(0.1), "t": np.array(time)} | {name: RNG.random((2, 3), np.float32) for name in names}
    plain = simplify(load_model(written(model, tmp_path)))
    found, wanted = (ReferenceEvaluator(each).run(None, feed) for each in (plain, model))
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
