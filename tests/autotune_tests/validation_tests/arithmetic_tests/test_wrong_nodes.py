"""Nodes that differ from the reference: which inputs they are checked on, and for how long."""

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import parser

from autotune.importer.guarded_import import flat_model
from autotune.validation.arithmetic import wrong_nodes
from autotune.validation.arithmetic.wrong_nodes import NumbersCheck
from schedules.vocabulary.errors import VerificationError
from tests.autotune_tests.tiny import target

INDICES = "(float[1,6] x, int64[3] n) => (float[3,6] y) { y = Gather(x, n) }"

BORDER = """(float[1,8,9,9] x) => (float[1,8,5,5] y)
    { y = MaxPool<kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]>(x) }"""
"""Windows at the border that hold nothing but NaN give a number."""


@pytest.fixture
def checked(tmp_path, measurer):
    """The check of a model as text, and the model."""

    def check(text):
        path = tmp_path / "m.onnx"
        onnx.save(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}'), path)
        flat = flat_model(path, {})[1]
        return NumbersCheck(flat, path, target(), measurer, "fp32", 0), flat

    return check


def test_inputs_that_are_indices_have_values_that_the_reference_runs(checked):
    check, model = checked(INDICES)
    with check:
        check(model)


def test_a_node_that_loses_nan_is_wrong(checked):
    check, model = checked(BORDER)
    with check, pytest.raises(VerificationError, match="y has numbers where the reference gives NaN or infinity"):
        check(model)


def test_where_onnx_runtime_differs_from_itself_anything_is_right(checked, monkeypatch):
    check, model = checked(BORDER)
    finite = SimpleNamespace(run=lambda feed: [np.zeros((1, 8, 5, 5), np.float32)])
    monkeypatch.setattr(wrong_nodes, "Session", lambda model, optimised: finite)
    with check:
        check(model)


def test_runs_of_the_reference_leave_the_time_for_parts(checked, monkeypatch):
    now = [0.0]
    real = wrong_nodes.reference_outputs

    def slow(model, feed):
        now[0] += wrong_nodes.MOST_S
        return real(model, feed)

    monkeypatch.setattr(wrong_nodes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(wrong_nodes, "reference_outputs", slow)
    check, model = checked(INDICES)
    assert now[0] > wrong_nodes.MOST_S
    with check:
        check(model)
        now[0] += wrong_nodes.MOST_S + 1
        with pytest.raises(VerificationError, match="too many or too large parts"):
            check(model)
