"""Open sizes that a model refuses are replaced by sizes that it runs with."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

import autotune
from autotune.options import Options
from autotune.validation import fitting_sizes
from autotune.validation.fitting_sizes import fitting_inputs
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written


def framed(size, batch="batch"):
    """A model whose length must be ``size``, which a Reshape says."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["rows"], "rows"),
        helper.make_node("Relu", ["rows"], ["y"], "bent"),
    ]
    model = model_of(nodes, [value("x", (batch, "N"))], ["y"], {})
    shape = helper.make_tensor("shape", TensorProto.INT64, [3], [1, 4, size // 4])
    model.graph.initializer.append(shape)
    return model


@pytest.mark.parametrize("size", [96, 256, 512, 576])
def test_a_size_that_runs_is_found(size, tmp_path):
    shapes, text = fitting_inputs(written(framed(size), tmp_path))
    assert shapes == {"x": (1, size)}
    assert f"--input x:1x{size}" in text


@pytest.mark.parametrize("beams", [2, 4, 5, 6])
def test_a_batch_that_is_a_multiple_of_beams_is_found(beams, tmp_path):
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"], "by_search")]
    model = model_of(nodes, [value("x", ("batch", 6))], ["y"], {"shape": np.array([-1, beams, 6])})
    shapes, text = fitting_inputs(written(model, tmp_path))
    assert shapes["x"][0] % beams == 0
    assert f"--input x:{shapes['x'][0]}x6" in text


def test_assumed_sizes_that_run_are_not_at_fault(tmp_path):
    path = written(framed(128), tmp_path)
    assert fitting_inputs(path) is None
    assert fitting_inputs(path, others=True) is None


def test_values_that_do_not_fit_are_not_taken_for_sizes(tmp_path):
    """The shape is an input of an open batch: the assumed sizes run with it."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"], "rows")]
    model = model_of(nodes, [value("x", ("batch", 6)), value("shape", (2,), TensorProto.INT64)], ["y"], {})
    assert fitting_inputs(written(model, tmp_path)) is None


def test_a_model_that_runs_with_no_size_names_the_option(tmp_path):
    with pytest.raises(ModelError, match=r"'x' is batch x N.*--input NAME:SHAPE"):
        fitting_inputs(written(framed(44), tmp_path))


def test_a_loop_that_never_ends_says_nothing_about_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(fitting_sizes, "MOST_S", 0.3)
    text = """<ir_version: 8, opset_import: ["": 17]> endless (float[N] x) => (float[N] y)
    {
        most = Constant <value = int64 {9223372036854775807}> ()
        go = Constant <value = bool {1}> ()
        y = Loop (most, go, x) <body = step (int64 i, bool c, float[N] s) => (bool d, float[N] t)
            { d = Identity (c) t = Neg (s) }>
    }"""
    assert fitting_inputs(written(parser.parse_model(text), tmp_path)) is None


def test_constants_in_another_file_are_no_hints(tmp_path):
    """They would be read from the working directory."""
    nodes = [
        helper.make_node("Gather", ["x", "first"], ["one"], axis=0),
        helper.make_node("Constant", [], ["shape"], value_ints=[1, 4, 24]),
        helper.make_node("Reshape", ["one", "shape"], ["y"], "rows"),
    ]
    model = model_of(nodes, [value("x", ("batch", "N"))], ["y"], {"first": np.array([0])})
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="all.data")
    shapes, _ = fitting_inputs(tmp_path / "m.onnx")
    assert shapes == {"x": (1, 96)}


def test_a_run_takes_the_size_that_fits(tmp_path, caplog):
    path = written(framed(576), tmp_path)
    options = Options(effort="instant", out=tmp_path / "out", log=str(tmp_path / "log.db"))
    result = autotune.tune(path, options)
    assert result.verified is not None
    assert result.verified.passed
    assert "--input x:1x576" in caplog.text
