"""Scales of padded calls: whatever stands behind the end, the numbers before it are quantised as alone."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.frame.noise import live_name
from autotune.importer.load import load_model
from autotune.importer.onnx_model.open_axes import sets_with_live

WIDTH = 6


def quantised(before=(), between=(), read="x", opset=17, shape=("batch", "length", WIDTH)):
    """A model that quantises ``read`` and multiplies it back."""
    nodes = [
        *before,
        helper.make_node("DynamicQuantizeLinear", [read], ["q", "s", "z"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        *between,
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array(np.array([-1, WIDTH]), "rows"),
        numpy_helper.from_array(np.array([WIDTH]), "tables"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "quantised", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


FLAT = [helper.make_node("Reshape", ["x", "rows"], ["all"])]
TURNED = [helper.make_node("Transpose", ["x"], ["turned"], perm=[2, 0, 1])]
TWICE = [helper.make_node("Concat", ["x", "x"], ["twice"], axis=1)]
MODELS = {
    "one behind the other": (
        quantised(TWICE, read="twice"),
        lambda y, b, n: np.concatenate([y[:b, :n], y[:b, 5 : 5 + n]], axis=1),
    ),
    "rows": (quantised(), lambda y, b, n: y[:b, :n]),
    "rows of opset 18": (quantised(opset=18), lambda y, b, n: y[:b, :n]),
    "all positions": (
        quantised(FLAT, read="all"),
        lambda y, b, n: y.reshape(4, 5, WIDTH)[:b, :n].reshape(-1, WIDTH),
    ),
    "lengths last": (quantised(TURNED, read="turned"), lambda y, b, n: y[:, :b, :n]),
}


def loaded(model, path, batch, length):
    path.write_bytes(model.SerializeToString())
    sizes = {live_name("batch"): (batch,), live_name("length"): (length,)}
    return load_model(path, {"x": (batch, length, WIDTH), **sizes})


def run(model, feed):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("behind", [0.0, 1e6, np.nan])
def test_what_stands_behind_the_end_changes_no_scale(name, behind, tmp_path):
    model, first = MODELS[name]
    masked = loaded(model, tmp_path / "m.onnx", 4, 5)
    rng = np.random.default_rng(0)
    for batch, length in ((4, 5), (3, 5), (4, 2), (1, 1)):
        x = np.full((4, 5, WIDTH), behind, np.float32)
        x[:batch, :length] = rng.standard_normal((batch, length, WIDTH))
        live = {live_name("batch"): np.arange(4) < batch, live_name("length"): np.arange(5) < length}
        alone = run(model, {"x": np.ascontiguousarray(x[:batch, :length])})
        np.testing.assert_array_equal(first(run(masked, {"x": x, **live}), batch, length), alone)


def recurrent(kind, direction):
    """A recurrent layer over (length, batch, WIDTH), of which all states and the last ones are outputs."""
    rng, gates, count = np.random.default_rng(0), {"LSTM": 4, "GRU": 3}[kind], 1 + (direction == "bidirectional")
    weights = [
        numpy_helper.from_array(rng.standard_normal((count, gates * 4, width)).astype(np.float32), name)
        for name, width in (("w", WIDTH), ("r", 4))
    ]
    node = helper.make_node(
        kind, ["x", "w", "r"], ["y", "h"], hidden_size=4, direction=direction, **RESETS.get(kind, {})
    )
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("length", "batch", WIDTH))]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yh"]
    graph = helper.make_graph([node], "recurrent", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


RESETS = {"GRU": {"linear_before_reset": 1}}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_end_where_the_call_does(kind, direction, tmp_path):
    model = recurrent(kind, direction)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    sizes = {live_name("batch"): (3,), live_name("length"): (7,)}
    session = onnxruntime.InferenceSession(
        load_model(tmp_path / "m.onnx", {"x": (7, 3, WIDTH), **sizes}).SerializeToString()
    )
    alone = onnxruntime.InferenceSession(model.SerializeToString())
    rng = np.random.default_rng(1)
    for batch, length in ((3, 7), (3, 4), (2, 1)):
        x = np.full((7, 3, WIDTH), 5, np.float32)
        x[:length, :batch] = rng.standard_normal((length, batch, WIDTH))
        live = {live_name("batch"): np.arange(3) < batch, live_name("length"): np.arange(7) < length}
        wanted = {value.name for value in session.get_inputs()}
        y, h = session.run(None, {name: array for name, array in {"x": x, **live}.items() if name in wanted})
        states, last = alone.run(None, {"x": np.ascontiguousarray(x[:length, :batch])})
        np.testing.assert_allclose(y[:length, :, :batch], states, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(h[:, :batch], last, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_no_numbers_come_of_none(number, tmp_path):
    masked = loaded(MODELS["rows"][0], tmp_path / "m.onnx", 2, 3)
    x = np.zeros((2, 3, WIDTH), np.float32)
    x[:1] = number
    live = {live_name("batch"): np.array([True, False]), live_name("length"): np.ones(3, bool)}
    assert not np.isfinite(run(masked, {"x": x, **live})[:1]).any()


@pytest.mark.parametrize(
    "model",
    [
        quantised(
            [helper.make_node("NonZero", ["x"], ["at"]), helper.make_node("Cast", ["at"], ["n"], to=1)], read="n"
        ),
    ],
)
def test_other_sizes_stay_as_they_are(model, tmp_path):
    masked = loaded(model, tmp_path / "m.onnx", 2, 3)
    assert "QuantizeLinear" not in {node.op_type for node in masked.graph.node}


def test_a_quantised_value_of_a_source_that_is_not_followed_is_cleared_itself(tmp_path):
    """A reshape that mixes an open size with others is not followed; what it yields has an axis of that size."""
    node = helper.make_node
    nodes = [
        node("Reshape", ["x", "split"], ["r"]),
        node("QuantizeLinear", ["r", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Conv", ["d", "w"], ["y"], pads=[1, 1, 1, 1]),
    ]
    arrays = {
        "split": np.array([1, 2, -1, 2]),
        "s": np.float32(1),
        "z": np.uint8(0),
        "w": np.ones((1, 2, 3, 3), np.float32),
    }
    graph = helper.make_graph(
        nodes,
        "split",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, "n"))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    path = tmp_path / "m.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    masked = load_model(path, {"x": (1, 4, 64), live_name("n"): (64,)})
    x = np.random.default_rng(0).uniform(0, 9, (1, 4, 64)).astype(np.float32)
    np.testing.assert_array_equal(run(masked, {"x": x, live_name("n"): np.ones(64, bool)}), run(model, {"x": x}))


def test_a_model_that_is_loaded_for_one_size_has_no_such_inputs(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(quantised().SerializeToString())
    model = load_model(path, {"x": (2, 3, WIDTH)})
    assert [value.name for value in model.graph.input] == ["x"]


def test_many_open_sizes_are_told_apart(tmp_path):
    path, symbols = tmp_path / "m.onnx", [f"size{number}" for number in range(8)]
    path.write_bytes(quantised(shape=symbols).SerializeToString())
    masked = load_model(path, {"x": (2,) * 8, **{live_name(symbol): (2,) for symbol in symbols}})
    assert "QuantizeLinear" in {node.op_type for node in masked.graph.node}
    x = np.full((2,) * 8, 100, np.float32)
    x[(slice(1),) * 8] = 1
    live = {live_name(symbol): np.array([True, False]) for symbol in symbols}
    assert run(masked, {"x": x, **live}).flat[0] == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize("where", ["input", "node"])
def test_a_model_that_has_such_a_name_stays_as_it_is(where, tmp_path):
    name = live_name("batch")
    model = quantised([helper.make_node("Neg", ["x"], [name])] if where == "node" else ())
    if where == "input":
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.BOOL, ["batch"]))
    masked = loaded(model, tmp_path / "m.onnx", 2, 3)
    assert "QuantizeLinear" not in {node.op_type for node in masked.graph.node}
    names = [value.name for value in masked.graph.input]
    assert len(names) == len(set(names))
    assert sets_with_live(model, ({"x": (2, 3, WIDTH)},)) == ({"x": (2, 3, WIDTH)},)
