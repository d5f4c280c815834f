"""A model without what Relax cannot import, or an error that names the operator."""

import pytest
from onnx import TensorProto, helper

from autotune.importer.conversion import resolve as resolve_module
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests import tiny
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written


@pytest.mark.parametrize(
    ("kind", "inputs", "why"),
    [("Expand", ["x", "s"], "Expand"), ("Reshape", ["x", "s"], "Reshape")],
)
def test_refusals_name_the_operator(tmp_path, kind, inputs, why):
    infos = [value("x", (1, 3)), value("s", (2,), TensorProto.INT64)][: len(inputs)]
    culprit = helper.make_node(kind, inputs, ["made"], "culprit")
    path = written(model_of([culprit, helper.make_node("Cast", ["made"], ["y"], to=1)], infos, ["y"]), tmp_path)
    with pytest.raises(ModelError, match=kind) as error:
        import_program(simplify(load_model(path)), tiny.target())
    assert why in str(error.value)
    assert "\n" not in str(error.value)


def test_a_sequence_of_unknown_elements_is_refused_with_what_decides_them(tmp_path):
    info = helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None)
    model = model_of([helper.make_node("SplitToSequence", ["x", "s"], ["parts"], "cut")], [], [])
    model.graph.input.extend([value("x", (4, 2)), value("s", (2,), TensorProto.INT64)])
    model.graph.output.append(info)
    with pytest.raises(ModelError, match=r"operator SplitToSequence .*its split 's' is computed from the inputs"):
        simplify(load_model(written(model, tmp_path)))


def test_a_model_of_which_nothing_changes_is_inferred_and_folded_once(tmp_path, monkeypatch):
    calls = []
    for name in ("infer_shapes", "fold"):
        monkeypatch.setattr(resolve_module, name, counted(getattr(resolve_module, name), name, calls))
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Tanh", ["a"], ["y"])]
    simplify(load_model(written(model_of(nodes, [value("x", (2, 3))], ["y"]), tmp_path)))
    assert calls == ["infer_shapes", "fold"]


def counted(function, name, calls):
    def call(*args, **kwargs):
        calls.append(name)
        return function(*args, **kwargs)

    return call
