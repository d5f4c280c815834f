"""Tensors hold what they claim; external data stays inside the model's folder."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.importer.load import load_model
from autotune.importer.onnx_model import tensors
from autotune.importer.onnx_model.tensors import array_of, as_uint8, leave_pages, load_tensors, whole
from autotune.importer.program import simplify
from schedules.vocabulary.errors import ModelError
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


LARGE = np.random.default_rng(0).standard_normal((128, 200)).astype(np.float32)


def saved_apart(folder, array=LARGE):
    """A model x · w, its weight in a file of its own."""
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", (2, 128))], ["y"], {"w": array})
    onnx.save_model(model, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    return folder / "m.onnx"


def test_large_weights_stay_in_their_file(tmp_path):
    path = saved_apart(tmp_path)
    apart, loaded = load_model(path, apart=True), load_model(path)
    assert apart.ByteSize() < 1000 < LARGE.nbytes < loaded.ByteSize()
    (weight,) = apart.graph.initializer
    np.testing.assert_array_equal(array_of(weight), LARGE)
    np.testing.assert_array_equal(array_of(as_uint8(weight, "bytes")), LARGE.view(np.uint8).reshape(-1))
    assert whole(apart).SerializeToString() != apart.SerializeToString()
    np.testing.assert_array_equal(numpy_helper.to_array(whole(apart).graph.initializer[0]), LARGE)
    assert whole(loaded) is loaded


def test_what_is_written_to_a_mapped_weight_stays_here(tmp_path):
    (weight,) = load_model(saved_apart(tmp_path), apart=True).graph.initializer
    array_of(weight)[:] = 0
    np.testing.assert_array_equal(array_of(weight), LARGE)


def test_weights_pass_apart_through_every_rewrite(tmp_path):
    simple = simplify(load_model(saved_apart(tmp_path), apart=True))
    (weight,) = (tensor for tensor in simple.graph.initializer if tuple(tensor.dims) == LARGE.shape)
    assert not weight.raw_data
    np.testing.assert_array_equal(array_of(weight), LARGE)


def test_a_weight_of_four_bits_apart(tmp_path):
    path = saved_apart(tmp_path)
    model = onnx.load(path, load_external_data=False)
    weight = model.graph.initializer[0]
    weight.data_type, weight.dims[:] = TensorProto.INT4, [128, 1600]
    load_tensors(model, tmp_path, "m", apart=True)
    plain = TensorProto(data_type=TensorProto.INT4, dims=[128, 1600], raw_data=LARGE.tobytes())
    np.testing.assert_array_equal(array_of(weight), numpy_helper.to_array(plain))


def test_pages_that_are_left_are_read_again_and_other_memory_stays(tmp_path):
    (tensor,) = load_model(saved_apart(tmp_path), apart=True).graph.initializer
    mapped, own = array_of(tensor), LARGE.copy()
    for array in (mapped, own):
        leave_pages(array)
        np.testing.assert_array_equal(array, LARGE)
    address = mapped.ctypes.data
    del mapped
    assert address not in tensors._MAPPED  # other memory may lie there next
