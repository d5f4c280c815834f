"""Sequences that are known at import, against ONNX Runtime."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.importer.load import load_model
from autotune.importer.program import simplify
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_a_sequence_is_split_changed_and_joined(tmp_path):
    nodes = [
        helper.make_node("SplitToSequence", ["x", "two"], ["s"], axis=1),
        helper.make_node("SequenceAt", ["s", "one"], ["last"]),
        helper.make_node("SequenceInsert", ["s", "last", "zero"], ["more"]),
        helper.make_node("SequenceErase", ["more"], ["less"]),
        helper.make_node("ConcatFromSequence", ["less"], ["y"], axis=0),
        helper.make_node("ConcatFromSequence", ["less"], ["z"], axis=0, new_axis=1),
    ]
    numbers = {name: np.array(number) for name, number in (("zero", 0), ("one", 1), ("two", 2))}
    model = model_of(nodes, [value("x", X.shape)], ["y", "z"], numbers)
    assert close(*run(model, tmp_path, {"x": X}))


def test_an_output_may_be_a_sequence(tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("SequenceConstruct", ["r", "x", "r"], ["y"]),
    ]
    model = model_of(nodes, [value("x", X.shape)], ["y"])
    model.graph.output[0].CopyFrom(helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None))
    (ours,), (theirs,) = run(model, tmp_path, {"x": X - 5})
    assert close(ours, theirs)
    assert len(ours) == 3


def _branch(name, *parts):
    """A body that makes a sequence of constants."""
    nodes = [
        helper.make_node("Constant", [], [f"{name}{k}"], value=helper.make_tensor("v", 1, [len(part)], part))
        for k, part in enumerate(parts)
    ]
    nodes.append(helper.make_node("SequenceConstruct", [f"{name}{k}" for k in range(len(parts))], [name]))
    return helper.make_graph(nodes, name, [], [helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)])


def chosen(*parts):
    """An If between two sequences whose condition is an input."""
    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=_branch("a", *parts[0]), else_branch=_branch("b", *parts[1])
    )
    model = model_of([node], [value("c", (), TensorProto.BOOL)], ["y"])
    model.graph.output[0].CopyFrom(helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None))
    return model


@pytest.mark.parametrize("condition", [True, False])
def test_a_computed_condition_chooses_element_by_element(tmp_path, condition):
    (ours,), (theirs,) = run(chosen([[1.0, 2.0], [3.0]], [[4.0, 5.0], [6.0]]), tmp_path, {"c": np.array(condition)})
    assert close(ours, theirs)


def test_sequences_of_other_shapes_are_refused_by_name(tmp_path):
    path = written(chosen([[1.0, 2.0]], [[4.0]]), tmp_path)
    with pytest.raises(ModelError, match=r"operator If .*different or unknown shapes"):
        simplify(load_model(path))
