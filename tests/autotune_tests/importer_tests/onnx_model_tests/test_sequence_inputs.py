"""Inputs that are sequences or optional values."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.importer.load import load_model
from autotune.importer.onnx_model.sequence_inputs import sequences_of
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written


def joined(dims=("n", 4)):
    """A model that joins the elements of a sequence."""
    model = model_of([helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)], [value("s", ())], ["y"])
    model.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, dims))
    return model


def test_elements_become_inputs_of_their_own_sizes(tmp_path):
    model = load_model(written(joined(), tmp_path), {"s[0]": (2, 4), "s[1]": (3, 4)})
    assert [info.name for info in model.graph.input] == ["s[0]", "s[1]"]
    assert [[d.dim_value for d in info.type.tensor_type.shape.dim] for info in model.graph.input] == [[2, 4], [3, 4]]
    assert sequences_of(model) == {"s": 2}


def test_a_number_alone_means_elements_of_the_declared_shape(tmp_path):
    model = load_model(written(joined((2, 4)), tmp_path), {"s": (3,)})
    assert [info.name for info in model.graph.input] == ["s[0]", "s[1]", "s[2]"]


def test_a_sequence_of_unknown_length_is_refused_with_what_to_type(tmp_path):
    with pytest.raises(ModelError, match=r"read by ConcatFromSequence.*--input 's\[0\]:1x3'"):
        load_model(written(joined(), tmp_path))


@pytest.mark.parametrize(("shape", "inputs"), [((3,), ["o"]), ((0,), [])])
def test_an_optional_value_is_there_unless_it_is_said_to_hold_nothing(tmp_path, shape, inputs):
    model = model_of([helper.make_node("OptionalHasElement", ["o"], ["y"])], [value("o", ())], ["y"], opset=18)
    inner = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n"])
    model.graph.input[0].type.CopyFrom(helper.make_optional_type_proto(inner))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.BOOL
    loaded = load_model(written(model, tmp_path), {"o": shape})
    assert [info.name for info in loaded.graph.input] == inputs
    assert np.array_equal([node.op_type for node in loaded.graph.node], ["Optional", "OptionalHasElement"])
