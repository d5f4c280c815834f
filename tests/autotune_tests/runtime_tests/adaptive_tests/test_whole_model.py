"""A whole model on ONNX Runtime: any size, its interface, and errors in one line."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.runtime.adaptive.whole_model import WholeModel
from schedules.vocabulary.errors import ModelError, RunError, UsageError
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written
from tests.models import save


def test_every_size_is_served_and_shown(tmp_path):
    save("tiny_open_length", tmp_path / "m.onnx")
    model = WholeModel(tmp_path / "m.onnx", 1)
    inputs, outputs = model.specs()
    assert [(spec.name, spec.shape, spec.dtype) for spec in inputs] == [
        ("ids", ("batch", "length"), "int64"),
        ("mask", ("batch", "length"), "int64"),
    ]
    assert [spec.dtype for spec in outputs] == ["float32", "float32"]
    for shape in ((1, 1), (3, 50)):
        answers = model.run(["ids", "mask"], [np.ones(shape, np.int64)] * 2)
        assert answers[0].shape == (*shape, 32)


def test_names_that_say_nothing_are_none(tmp_path):
    nodes = [helper.make_node("Add", ["x", "z"], ["y"])]
    values = [value("x", ("None", "?", "N")), value("z", ("None", "-1", None))]
    inputs, _ = WholeModel(written(model_of(nodes, values, ["y"]), tmp_path), 1).specs()
    assert [spec.shape for spec in inputs] == [("?", "?", "N"), ("?", "?", "?")]


def test_errors_name_the_model(tmp_path):
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    shape = np.array([2, 2], np.int64)
    path = written(model_of(nodes, [value("x", ("n",))], ["y"], {"shape": shape}), tmp_path, "m.onnx")
    with pytest.raises(RunError, match=r"m\.onnx failed on ONNX Runtime: "):
        WholeModel(path, 1).run(["x"], [np.zeros(5, np.float32)])
    (tmp_path / "none.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError, match=r"ONNX Runtime refuses none\.onnx: "):
        WholeModel(tmp_path / "none.onnx", 1).specs()


def test_what_is_no_tensor_is_refused(tmp_path):
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, ["n"])
    nodes = [helper.make_node("SequenceLength", ["x"], ["y"])]
    model = model_of(nodes, [sequence], [])
    model.graph.output.append(value("y", (), TensorProto.INT64))
    with pytest.raises(UsageError, match="'x' is not a tensor, as adapt needs"):
        WholeModel(written(model, tmp_path), 1).specs()
