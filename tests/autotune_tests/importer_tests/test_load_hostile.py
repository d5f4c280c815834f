"""Models made to hurt: refused in one line, reading nothing outside the model's folder."""

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.importer.load import load_model
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.onnx_cases import conv_model, model_of, value, written
from tests.autotune_tests.importer_tests.test_load import refusal
from tests.hostile import function, varint

SECRET = bytes(range(256)) * 4


def external(folder, location, length=None, offset=None, shape=(16, 16)):
    """A model in ``folder`` whose weight of ``shape`` claims to lie at ``location``."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, entry in (("location", location), ("length", length), ("offset", offset)):
        if entry is not None:
            tensor.external_data.add(key=key, value=str(entry))
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", (1, shape[0]))], ["y"])
    model.graph.initializer.append(tensor)
    return written(model, folder)


@pytest.fixture
def folder(tmp_path):
    """A model's folder, with a secret beside it."""
    (tmp_path / "secret.bin").write_bytes(SECRET)
    inside = tmp_path / "inside"
    inside.mkdir()
    return inside


def test_external_data_beside_the_model_is_read(folder):
    weights = np.arange(256, dtype=np.float32).reshape(16, 16)
    (folder / "data").mkdir()
    (folder / "data" / "w.bin").write_bytes(b"\0" * 64 + weights.tobytes())
    for length in (1024, None):
        model = load_model(external(folder, "data/w.bin", length, 64))
        assert np.array_equal(numpy_helper.to_array(model.graph.initializer[0]), weights)


@pytest.mark.parametrize(
    "location",
    ["../secret.bin", "data/../../secret.bin", "/etc/passwd", "..\\secret.bin", "C:\\secret.bin", "", "w\0.bin", ".."],
)
def test_external_data_outside_the_folder(folder, location):
    assert "outside the model's folder" in refusal(external(folder, location))


def test_absolute_path_even_into_the_folder(folder):
    (folder / "w.bin").write_bytes(SECRET)
    assert "outside the model's folder" in refusal(external(folder, str(folder / "w.bin")))


def test_links(folder):
    (folder / "link.bin").symlink_to(folder.parent / "secret.bin")
    (folder / "linked").symlink_to(folder.parent)
    for location in ("link.bin", "linked/secret.bin"):
        assert "is a link" in refusal(external(folder, location))


def test_hard_link_to_a_file_outside(folder):
    os.link(folder.parent / "secret.bin", folder / "hard.bin")
    assert "keep the file beside the model" in refusal(external(folder, "hard.bin"))


def test_external_data_that_is_no_plain_file(folder):
    os.mkfifo(folder / "pipe")
    (folder / "sub").mkdir()
    for location in ("pipe", "sub", "none.bin"):
        assert "is missing" in refusal(external(folder, location))


@pytest.mark.parametrize(
    ("length", "offset"),
    [(1023, None), (4096, None), (1024, 1), (1024, -8), (2**40, None), ("many", None), (1024, "1e3"), (-1, None)],
)
def test_external_claims_that_do_not_fit(folder, length, offset):
    (folder / "w.bin").write_bytes(SECRET)
    message = refusal(external(folder, "w.bin", length, offset))
    assert "w.bin" in message


def test_claim_of_two_gigabytes(folder):
    (folder / "w.bin").write_bytes(SECRET)
    assert "damaged" in refusal(external(folder, "w.bin", shape=(2**15, 2**14)))
    assert "damaged" in refusal(external(folder, "w.bin", shape=(2**31, 2**31)))


def tensor_model(tensor):
    """A model whose only weight is ``tensor``."""
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], [value("x", (1, 4))], ["y"])
    model.graph.initializer.append(tensor)
    return model


@pytest.mark.parametrize(
    ("tensor", "word"),
    [
        (TensorProto(name="w", data_type=1, dims=[-4], raw_data=b"\0" * 16), "negative shape"),
        (TensorProto(name="w", data_type=1, dims=[4], raw_data=b"\0" * 15), "holds 15"),
        (TensorProto(name="w", data_type=1, dims=[2**40], raw_data=b"\0" * 16), "holds 16"),
        (TensorProto(name="w", data_type=1, dims=[4], float_data=[1.0]), "holds 1"),
        (TensorProto(name="w", data_type=1, dims=[4]), "holds 0"),
        (TensorProto(name="w", data_type=0, dims=[4], raw_data=b"\0" * 16), "unknown element type"),
        (TensorProto(name="w", data_type=999, dims=[4], raw_data=b"\0" * 16), "unknown element type"),
    ],
)
def test_tensors_that_are_not_what_they_claim(tmp_path, tensor, word):
    assert word in refusal(written(tensor_model(tensor), tmp_path))


def test_damaged_tensor_in_a_constant_node(tmp_path):
    broken = TensorProto(name="t", data_type=1, dims=[100], raw_data=b"\0" * 16)
    nodes = [helper.make_node("Constant", [], ["c"], value=broken), helper.make_node("Add", ["x", "c"], ["y"])]
    assert "holds 16" in refusal(written(model_of(nodes, [value("x", (1, 4))], ["y"]), tmp_path))


def test_sparse_initialiser(tmp_path):
    model = conv_model()
    model.graph.sparse_initializer.add().values.name = "s"
    assert "sparse" in refusal(written(model, tmp_path))


def test_huge_activation(tmp_path):
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["big"]),
        helper.make_node("Add", ["x", "big"], ["y"]),
    ]
    weights = {"shape": np.array([2**20, 2**20], np.int64)}
    message = refusal(written(model_of(nodes, [value("x", (1, 1))], ["y"], weights), tmp_path))
    assert "'big'" in message
    assert "GiB" in message


def test_huge_input(tmp_path):
    assert "GiB" in refusal(written(conv_model(("n", 3, 8, 8)), tmp_path), {"x": (2**40, 3, 8, 8)})


def body(depth):
    """An If nested ``depth`` deep."""
    inner = [helper.make_node("Identity", ["x"], ["out"])]
    for _ in range(depth):
        out = [helper.make_tensor_value_info("out", 1, None)]
        branch = helper.make_graph(inner, "branch", [], out)
        inner = [helper.make_node("If", ["c"], ["out"], then_branch=branch, else_branch=branch)]
    return inner


def test_control_flow_nested_too_deep(tmp_path):
    """Both branches of every If hold the next one: 2^depth nodes from a small file, were they all walked."""
    inputs = [value("x", (1,)), helper.make_tensor_value_info("c", TensorProto.BOOL, ())]
    shallow = model_of(body(2), inputs, ["out"])
    load_model(written(shallow, tmp_path))
    chain = body(1)
    for _ in range(20):
        branch = helper.make_graph(chain, "branch", [], [helper.make_tensor_value_info("out", 1, None)])
        leaf = helper.make_graph(body(0), "leaf", [], [helper.make_tensor_value_info("out", 1, None)])
        chain = [helper.make_node("If", ["c"], ["out"], then_branch=branch, else_branch=leaf)]
    assert "deep" in refusal(written(model_of(chain, inputs, ["out"]), tmp_path))


def test_messages_nested_beyond_protobuf(tmp_path):
    data = b""
    for _ in range(5000):  # a graph in an attribute of a node in a graph …
        graph = b"\x0a" + varint(len(data)) + data
        attribute = b"\x32" + varint(len(graph)) + graph
        data = b"\x2a" + varint(len(attribute)) + attribute
    node = b"\x0a" + varint(len(data)) + data
    path = tmp_path / "deep.onnx"
    path.write_bytes(b"\x08\x08" + b"\x3a" + varint(len(node)) + node)
    assert "damaged" in refusal(path)


def calling(functions):
    nodes = [helper.make_node(functions[-1].name, ["x"], ["y"], domain="local")]
    return model_of(nodes, [value("x", (1, 4))], ["y"], functions=functions, domains=["local"])


def test_functions_that_multiply(tmp_path):
    functions = [function("f0", ["Relu"] * 10)]
    functions += [function(f"f{i}", [f"f{i - 1}"] * 10) for i in range(1, 12)]
    message = refusal(written(calling(functions), tmp_path))
    assert "nodes once its functions are expanded" in message


def test_functions_that_call_themselves(tmp_path):
    for functions in ([function("f0", ["f0"])], [function("f0", ["f1"]), function("f1", ["f0"])]):
        assert "calls itself" in refusal(written(calling(functions), tmp_path))


def test_unknown_operator_inside_a_function(tmp_path):
    assert "'Bogus'" in refusal(written(calling([function("f0", ["Relu", "Bogus"])]), tmp_path))


def test_cycle(tmp_path):
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    assert "in a circle" in refusal(written(model_of(nodes, [value("x", (1,))], ["b"]), tmp_path))


def test_random_damage_never_escapes_as_another_error(tmp_path):
    """A byte changed anywhere: the model still loads, or is refused as a model."""
    whole = bytearray(conv_model().SerializeToString())
    rng = np.random.default_rng(0)
    path = tmp_path / "damaged.onnx"
    refusals = []
    for _ in range(1000):
        data = bytearray(whole)
        for position in rng.integers(0, len(data), 3):
            data[position] = rng.integers(0, 256)
        path.write_bytes(data)
        try:
            load_model(path)
        except ModelError as error:
            refusals.append(str(error))
    assert len(refusals) > 20
    assert not [message for message in refusals if "\n" in message]


def test_onnx_is_new_enough_for_its_own_defences():
    assert tuple(map(int, onnx.__version__.split(".")[:2])) >= (1, 21)
