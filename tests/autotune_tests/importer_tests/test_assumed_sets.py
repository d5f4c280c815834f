"""Whether a row uses most weights once: models of dense layers do, models of convolutions and positions do not."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.importer.assumed_sets import ROWS, assumed_sets, uses_weights_once
from autotune.importer.onnx_model.inline_weights import model_without_weights
from tests import hostile


def node(kind, *inputs, out):
    return helper.make_node(kind, inputs, [out])


def graph(nodes, shape, **initialisers):
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    tensors = [
        numpy_helper.from_array(dims if isinstance(dims, np.ndarray) else np.ones(dims, np.float32), name)
        for name, dims in initialisers.items()
    ]
    return helper.make_graph(nodes, "g", values, made, tensors)


PERCEPTRON = [node("Gemm", "x", "w", "b", out="h"), node("Relu", "h", out="r"), node("MatMul", "r", "v", out="y")]
QUANTISED = [node("DequantizeLinear", "w", "s", out="d"), node("MatMul", "x", "d", out="y")]
IMAGE = [node("Flatten", "x", out="f"), node("Gemm", "f", "w", out="y")]
TRANSPOSED = [node("Transpose", "w", out="t"), node("MatMul", "x", "t", out="y")]
RESHAPED = [node("Reshape", "x", "s", out="f"), node("MatMul", "f", "w", out="y")]
SIZED = [
    node("Shape", "x", out="a"),
    node("Gather", "a", "zero", out="b"),
    node("Unsqueeze", "b", "axis", out="c"),
    node("Concat", "c", "rest", out="d"),
    node("Reshape", "x", "d", out="f"),
    node("Gemm", "f", "w", out="y"),
]
INTS = [helper.make_node("Constant", [], ["s"], value_ints=[-1, 64]), *RESHAPED]
FOLDED = [
    node("Gather", "w", "x", out="e"),
    node("Reshape", "e", "s", out="f"),
    node("MatMul", "f", "v", out="g"),
    node("Gemm", "g", "u", out="y"),
]
EMBEDDED = [node("Gather", "w", "x", out="e"), node("Flatten", "e", out="f"), node("MatMul", "f", "v", out="y")]


@pytest.mark.parametrize(
    ("nodes", "shape", "initialisers"),
    [
        (PERCEPTRON, ["n", 64], {"w": (64, 32), "b": (32,), "v": (32, 4)}),
        (QUANTISED, ["n", 64], {"w": (64, 32), "s": (1,)}),
        (IMAGE, ["n", 1, 8, 8], {"w": (64, 32)}),
        (TRANSPOSED, ["n", 64], {"w": (32, 64)}),
        (RESHAPED, ["n", 8, 8], {"w": (64, 32), "s": (2,)}),
        (SIZED, ["n", 8, 8], {"w": (64, 32), "zero": (), "axis": (1,), "rest": (1,)}),
        (INTS, ["n", 8, 8], {"w": (64, 32)}),
        (EMBEDDED, ["n", 8], {"w": (1000, 8), "v": (64, 4)}),
    ],
)
def test_layers_whose_rows_are_those_of_the_batch_use_weights_once(nodes, shape, initialisers):
    assert uses_weights_once(graph(nodes, shape, **initialisers))


@pytest.mark.parametrize(
    ("nodes", "shape", "initialisers"),
    [
        ([node("Relu", "x", out="y")], ["n", 8], {}),
        ([node("MatMul", "x", "w", out="y")], ["n", 16, 64], {"w": (64, 32)}),
        (
            [node("Conv", "x", "w", out="c"), node("Flatten", "c", out="f"), node("MatMul", "f", "v", out="y")],
            ["n", 3, 8, 8],
            {"w": (16, 3, 3, 3), "v": (576, 10)},
        ),
        (FOLDED, ["n", 16], {"w": (99, 8), "s": np.array([-1, 8]), "v": (8, 8), "u": (8, 4)}),
        ([node("Gather", "w", "x", out="e"), node("MatMul", "e", "v", out="y")], ["n", 8], {"w": (99, 8), "v": (8, 4)}),
        *(
            (
                [
                    node(kind, "x", "w", "r", out="h"),
                    node("Gather", "h", "last", out="e"),
                    node("Gemm", "e", "v", out="y"),
                ],
                ["n", 20, 8],
                {"w": (1, 8, 64), "r": (1, 16, 64), "v": (16, 99), "last": ()},
            )
            for kind in ("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM")
        ),
    ],
)
def test_positions_of_a_row_share_weights_already(nodes, shape, initialisers):
    assert not uses_weights_once(graph(nodes, shape, **initialisers))


def test_nodes_that_are_no_operators_are_left_to_the_import():
    assert not uses_weights_once(graph([node("Gather", "x", out="e"), node("MatMul", out="y")], ["n", 8]))


@pytest.mark.parametrize("name", [name for name in hostile.ATTACKS if "pipe" not in name])
def test_hostile_models_are_left_to_the_import(tmp_path, name):
    """The rows are looked at in the main process, before the import that has limits."""
    model = model_without_weights(hostile.prepared(name, tmp_path))
    assert model is None or uses_weights_once(model.graph) in (True, False)


def shapes_of(tmp_path, dims):
    path = tmp_path / "m.onnx"
    one = graph([node("MatMul", "x", "w", out="y")], dims, w=(64, 32))
    path.write_bytes(helper.make_model(one).SerializeToString())
    return assumed_sets(path)


def test_such_a_model_gets_a_set_for_each_of_several_batches(tmp_path):
    sets, text = shapes_of(tmp_path, ["n", 64])
    assert sets == tuple({"x": (rows, 64)} for rows in ROWS)
    assert "--input 'x:{1,4,16,64}x64'" in text


def test_sizes_that_are_no_batches_get_one_set(tmp_path):
    sets, text = shapes_of(tmp_path, ["n", "n"])
    assert sets == ({"x": (1, 1)},)
    assert "--input x:1x1" in text


def test_a_model_without_open_sizes_gets_none(tmp_path):
    assert shapes_of(tmp_path, [8, 64]) == ((), "")


def test_an_open_batch_of_images_gets_none(tmp_path):
    """Its artifact answers other batches row by row."""
    path = tmp_path / "m.onnx"
    one = graph([node("Conv", "x", "w", out="y")], ["n", 3, 8, 8], w=(4, 3, 3, 3))
    path.write_bytes(helper.make_model(one).SerializeToString())
    assert assumed_sets(path) == ((), "")
