"""Tensors hold what they claim; external data stays inside the model's folder."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from autotune.importer.onnx_model.tensors import load_tensors
from schedules.errors import ModelError
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

WEIGHT = np.arange(6, dtype=np.float32)


def model_with(**entries):
    """A model whose weight lies in a file, described by ``entries``."""
    model = model_of([], [value("x", (1,))], ["x"])
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[6], data_location=TensorProto.EXTERNAL)
    for key, text in entries.items():
        tensor.external_data.add(key=key, value=text)
    model.graph.initializer.append(tensor)
    return model


def test_external_data_is_read(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"1234" + WEIGHT.tobytes())
    model = model_with(location="w.bin", offset="4")
    load_tensors(model, tmp_path, "m")
    np.testing.assert_array_equal(numpy_helper.to_array(model.graph.initializer[0]), WEIGHT)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "../w.bin"}, "is outside the model's folder"),
        ({"location": "/w.bin"}, "is outside the model's folder"),
        ({"location": "none.bin"}, "is missing in"),
        ({"location": "link.bin"}, "is a link"),
        ({"location": "w.bin", "length": "8"}, "is damaged: bytes 0 to 8 of a file of 24, 24 needed"),
        ({"location": "w.bin", "offset": "x"}, "cannot be read"),
    ],
)
def test_external_data_that_is_refused(tmp_path, entries, message):
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    (tmp_path / "link.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(ModelError, match=message):
        load_tensors(model_with(**entries), tmp_path, "m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dims": [7]}, "of shape .7. needs 28 values or bytes and holds 24"),
        ({"dims": [-6]}, "has the negative shape"),
        ({"data_type": 99}, "has the unknown element type 99"),
    ],
)
def test_tensors_that_lie_about_themselves(tmp_path, change, message):
    tensor = numpy_helper.from_array(WEIGHT, "w")
    if "dims" in change:
        tensor.dims[:] = change["dims"]
    tensor.data_type = change.get("data_type", tensor.data_type)
    model = onnx.ModelProto()
    model.graph.initializer.append(tensor)
    with pytest.raises(ModelError, match=message):
        load_tensors(model, tmp_path, "m")
