"""Every output is made by a kernel; tensors without elements are left out."""

import numpy as np
import pytest
from onnx import helper

from autotune.importer.conversion.bounds import bounded
from autotune.importer.onnx_model.shapes import infer_shapes
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def checked(nodes, inputs, outputs):
    model = model_of(nodes, inputs, outputs)
    infer_shapes(model, "m")
    return bounded(model)


def test_an_output_that_is_an_input_is_copied():
    model = model_of([helper.make_node("Identity", ["x"], ["same"])], [value("x", (2,))], [])
    model.graph.output.extend([value("same", (2,)), value("x", (2,))])
    copied = bounded(model)
    assert [node.op_type for node in copied.graph.node] == ["Copy", "Copy"]
    assert [output.name for output in copied.graph.output] == ["same", "x/copy"]


def test_empty_tensors_are_left_out():
    nodes = [helper.make_node("Concat", ["x", "none", "x"], ["y"], axis=0), helper.make_node("Relu", ["none"], ["z"])]
    left = checked(nodes, [value("x", (2,)), value("none", (0,))], ["y", "z"])
    assert list(left.graph.node[0].input) == ["x", "x"]
    assert [info.name for info in (*left.graph.input, *left.graph.output)] == ["x", "y"]


def test_a_model_of_empty_outputs_has_a_kernel_all_the_same(tmp_path):
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [value("x", (0, 3))], ["y"])
    assert close(*run(model, tmp_path, {"x": np.zeros((0, 3), np.float32)}))


def test_unknown_shapes_are_refused():
    nodes = [helper.make_node("NonZero", ["x"], ["n"], "culprit"), helper.make_node("Cast", ["n"], ["y"], to=1)]
    with pytest.raises(ModelError, match=r"operator NonZero \(node 'culprit'\) is not supported: the shape"):
        checked(nodes, [value("x", (3,))], ["y"])
