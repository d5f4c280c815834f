"""Large weights inside a model's own file stay there while it is imported; any other file is left to protobuf."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.importer.guarded_import import import_model
from autotune.importer.load import load_model
from autotune.importer.onnx_model.inline_weights import parts_without_weights
from autotune.importer.onnx_model.tensors import APART_BYTES, array_of, whole
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value
from tests.autotune_tests.tiny import target

LARGE = np.random.default_rng(0).standard_normal((128, 200)).astype(np.float32)
SMALL = np.arange(200, dtype=np.float32)


def saved(path, change=lambda tensor: None):
    """A model x · w + b, its weights inside; ``change`` edits w before it is written."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    model = model_of(nodes, [value("x", (2, 128))], ["y"], {"w": LARGE, "b": SMALL})
    change(next(tensor for tensor in model.graph.initializer if tensor.name == "w"))
    path.write_bytes(model.SerializeToString())
    return path


def test_a_large_weight_stays_in_the_file_and_a_small_one_is_read(tmp_path):
    path = saved(tmp_path / "m.onnx")
    mapped, loaded = load_model(path, apart=True, mapped=True), load_model(path)
    assert mapped.ByteSize() < 3000 < LARGE.nbytes < loaded.ByteSize()
    weights = {tensor.name: tensor for tensor in mapped.graph.initializer}
    assert not weights["w"].raw_data
    np.testing.assert_array_equal(array_of(weights["w"]), LARGE)
    np.testing.assert_array_equal(numpy_helper.to_array(weights["b"]), SMALL)
    assert whole(mapped) == loaded


def test_the_imported_program_has_the_weights(tmp_path):
    _, program = import_model(saved(tmp_path / "m.onnx"), {}, target())
    numbers = np.sort(np.concatenate([np.asarray(weight).view(np.float32).reshape(-1) for weight in program.weights]))
    assert np.isin(LARGE.reshape(-1), numbers).all()


def test_a_weight_of_the_wrong_size_is_refused_as_ever(tmp_path):
    def longer(tensor):
        tensor.dims[:] = [128, 201]

    path = saved(tmp_path / "m.onnx", longer)
    for mapped in (True, False):
        with pytest.raises(ModelError, match=r"of shape \[128, 201\] needs 102912 values or bytes and holds 102400"):
            load_model(path, apart=True, mapped=mapped)


def test_a_file_that_calls_itself_external_is_outside_of_the_folder(tmp_path):
    def external(tensor):
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, text in (("location", str(tmp_path / "m.onnx")), ("offset", "0"), ("length", str(LARGE.nbytes))):
            tensor.external_data.add(key=key, value=text)

    path = saved(tmp_path / "m.onnx", external)
    with pytest.raises(ModelError, match="is outside the model's folder"):
        load_model(path, apart=True, mapped=True)


def in_floats(tensor):
    tensor.ClearField("raw_data")
    tensor.float_data.extend(LARGE.reshape(-1).tolist())


def test_numbers_in_another_field_are_left_to_protobuf(tmp_path):
    assert parts_without_weights(saved(tmp_path / "m.onnx", in_floats)) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"", onnx.ModelProto(graph=onnx.GraphProto(name="g")).SerializeToString()), (b"\x0b", b""), (b"", b"\x3a\xff")],
    ids=["two graphs", "a group", "cut short"],
)
def test_another_structure_is_left_to_protobuf(tmp_path, before, after):
    path = saved(tmp_path / "m.onnx")
    assert parts_without_weights(path) is not None
    path.write_bytes(before + path.read_bytes() + after)
    assert parts_without_weights(path) is None


def field(number, content):
    """A field of bytes as the wire format has it."""
    length, size = bytearray(), len(content)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


@pytest.mark.parametrize("times", [1, 2])
def test_data_that_is_there_twice_is_left_to_protobuf(tmp_path, times):
    path = tmp_path / "m.onnx"
    path.write_bytes(field(7, field(5, times * field(9, LARGE.tobytes()))))
    assert (parts_without_weights(path) is None) == (times == 2)


def test_a_damaged_file_is_said_to_have_the_bytes_that_it_has(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(field(7, field(5, field(9, LARGE.tobytes())) + field(1, b"\xff")))  # a node that is none
    assert parts_without_weights(path) is not None
    for mapped in (True, False):
        with pytest.raises(ModelError, match=rf"cut short \({path.stat().st_size} bytes\)"):
            load_model(path, apart=True, mapped=mapped)


def test_a_path_that_is_no_text_is_left_to_protobuf(tmp_path):
    path = saved(tmp_path / "m\udcff.onnx")
    assert path.stat().st_size > APART_BYTES
    assert parts_without_weights(path) is None
