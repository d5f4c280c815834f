"""Relax's importer with our converters: errors name the operator."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.importer.conversion.operator_catalog import import_graph
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests import tiny
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "why"),
    [
        ("DeformConv", {"x": (1, 1, 4, 4, 4), "w": (1, 1, 2, 2, 2), "o": (1, 8, 3, 3, 3)}, {}, "only images of two"),
        ("ReduceMax", {"x": (2, 3), "axes": (1,)}, {}, "its axes are computed from the inputs; they must be constant"),
        (
            "LSTM",
            {"x": (3, 2, 6), "w": (1, 128, 6), "r": (1, 128, 32)},
            {"hidden_size": 32},
            "its weights are computed from the inputs; they must be constant",
        ),
    ],
)
def test_forms_that_are_missing_are_told_as_such(kind, shapes, attributes, why):
    infos = [value(name, shape, TensorProto.INT64 if name == "axes" else 1) for name, shape in shapes.items()]
    node = helper.make_node(kind, [*shapes], ["y"], "culprit", **attributes)
    with pytest.raises(ModelError) as error:
        import_graph(model_of([node], infos, ["y"], opset=19))
    assert str(error.value).startswith(f"operator {kind} (node 'culprit') is not supported: ")
    assert why in str(error.value)


@pytest.mark.parametrize("gap", [0, 4, 60])
def test_weights_may_lie_anywhere_in_their_file(tmp_path, gap):
    """PyTorch writes tensors of small models one behind the other, at offsets that are no multiple of anything."""
    weight = np.random.default_rng(0).standard_normal((128, 200)).astype(np.float32)
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", (2, 128))], ["y"], {"w": weight})
    path = tmp_path / "m.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    data = (tmp_path / "m.data").read_bytes()
    (tmp_path / "m.data").write_bytes(bytes(gap) + data)
    moved = onnx.load(path, load_external_data=False)
    for entry in moved.graph.initializer[0].external_data:
        entry.value = str(gap + int(entry.value)) if entry.key == "offset" else entry.value
    onnx.save(moved, path)
    program = import_program(simplify(load_model(path, apart=True)), tiny.target())
    assert any(np.array_equal(np.sort(kept, axis=None), np.sort(weight, axis=None)) for kept in program.weights)


def test_a_window_that_fits_nowhere_behind_a_pool_that_rounds_up(tmp_path):
    """ONNX's inference takes a last window that begins outside of the data for one that counts."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], "first", kernel_shape=[2], strides=[3], pads=[0, 1], ceil_mode=1),
        helper.make_node("MaxPool", ["p"], ["y"], "second", kernel_shape=[4], pads=[0, 1], strides=[2]),
    ]
    model = model_of(nodes, [value("x", (1, 4, 3))], ["y"])
    with pytest.raises(ModelError, match=r"MaxPool.*second.*window is larger than its padded data \[1, 4, 1\]; check"):
        import_program(simplify(load_model(written(model, tmp_path))), tiny.target())
