"""Shifts, casts that keep the bits, copies."""

import numpy as np
from onnx import TensorProto, helper

from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def test_shifts_within_the_width(tmp_path):
    kind = TensorProto.UINT8
    nodes = [helper.make_node("BitShift", ["x", "n"], [way.lower()], direction=way) for way in ("LEFT", "RIGHT")]
    model = model_of(nodes, [value("x", (4,), kind), value("n", (4,), kind)], [])
    model.graph.output.extend([value("left", (4,), kind), value("right", (4,), kind)])
    feed = {"x": np.array([1, 255, 128, 7], np.uint8), "n": np.array([0, 1, 7, 3], np.uint8)}
    assert close(*run(model, tmp_path, feed))


def test_an_input_that_is_an_output_is_copied(tmp_path):
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Neg", ["x"], ["y"])]
    model = model_of(nodes, [value("x", (3,))], ["same", "y"])
    assert close(*run(model, tmp_path, {"x": np.arange(3, dtype=np.float32)}))
