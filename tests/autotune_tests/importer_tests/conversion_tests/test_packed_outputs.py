"""Outputs that are sequences, and a model's frame."""

import numpy as np
from onnx import TensorProto, helper

from autotune.importer.conversion.packed_outputs import frame_of, pack_outputs
from autotune.importer.load import load_model
from autotune.importer.program import simplify
from tests.autotune_tests.importer_tests.onnx_cases import conv_model, model_of, value, written


def pair():
    """A model that gives its input twice, as a sequence."""
    model = model_of([helper.make_node("SequenceConstruct", ["x", "x"], ["y"])], [value("x", (2,))], ["y"])
    model.graph.output[0].CopyFrom(helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None))
    return model


def test_elements_become_outputs():
    model = pair()
    (step,) = pack_outputs(model)
    assert (step.kind, step.inputs, step.outputs) == ("Pack", ("y[0]", "y[1]"), ("y",))
    assert [info.name for info in model.graph.output] == ["y[0]", "y[1]"]


def test_a_model_of_tensors_has_no_frame(tmp_path):
    assert frame_of(simplify(load_model(written(conv_model(), tmp_path)))) is None


def test_a_frame_says_what_users_see(tmp_path):
    frame = frame_of(simplify(load_model(written(pair(), tmp_path))))
    assert [(spec.name, spec.shape) for spec in frame.inputs] == [("x", (2,))]
    assert [(spec.name, spec.shape, spec.dtype) for spec in frame.outputs] == [("y", (2,), "sequence")]
    values = {"y[0]": np.zeros(2), "y[1]": np.ones(2)}
    frame.run(frame.after, values)
    assert len(values["y"]) == 2
