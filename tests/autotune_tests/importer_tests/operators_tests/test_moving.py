"""Pads, splits and windows: elements move to places that constants decide."""

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.built import close, imported, run, run_ours
from tests.autotune_tests.importer_tests.onnx_cases import model_of, rewritten, value


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pads(tmp_path, mode):
    nodes = [helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)]
    model = model_of(nodes, [value("x", (2, 4))], ["y"], {"pads": np.array([0, 2, 1, 3])})
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert "Pad" in rewritten(model, tmp_path, {"x": x})


BORDERS = [(0, 0, 3, 3, 0, 0, 3, 3), (0, 0, 0, 2, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0, 1, 4), (0, 0, 1, -2, 0, 0, 0, 3)]


@pytest.mark.parametrize("pads", BORDERS)
@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("channels", [3, 16])
def test_borders_that_repeat_the_image(tmp_path, mode, pads, channels):
    node = helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)
    shape = (1, channels, 11, 13)
    model = model_of([node], [value("x", shape)], ["y"], {"pads": np.array(pads)}, opset=19)
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    ours, theirs = run(model, tmp_path, {"x": x})
    assert np.array_equal(ours[0], theirs[0])


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4, 3, 5), (7,), (1, 1)])
def test_borders_of_any_rank_are_one_kernel(tmp_path, mode, shape):
    """Borders may be longer than the axis, where the mode allows it; axes are named or not."""
    pads = [1] * len(shape) + [2 if mode == "reflect" and size > 2 else 4 if mode != "reflect" else 0 for size in shape]
    pads = [pad if size > 1 or mode != "reflect" else 0 for pad, size in zip(pads, (*shape, *shape), strict=True)]
    named = {"pads": np.array(pads), "none": np.array(0, np.float32), "axes": np.arange(len(shape)) - len(shape)}
    node = helper.make_node("Pad", ["x", "pads", "none", "axes"], ["y"], mode=mode)
    model = model_of([node], [value("x", shape)], ["y"], named, opset=19)
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    ours, theirs = run(model, tmp_path, {"x": x})
    assert np.array_equal(ours[0], theirs[0])
    assert len(imported(model, tmp_path).tasks) <= 1


def test_borders_between_convolutions_keep_blocks_of_channels(tmp_path):
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((16, 16, 3, 3), np.float32) / 12 for name in ("w0", "w1")}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"]),
        helper.make_node("Pad", ["c", "p"], ["q"], mode="reflect"),
        helper.make_node("Conv", ["q", "w1"], ["y"]),
    ]
    graph = model_of(nodes, [value("x", (1, 16, 9, 11))], ["y"], {**weights, "p": np.array([0, 0, 1, 2, 0, 0, 2, 1])})
    assert close(*run(graph, tmp_path, {"x": rng.standard_normal((1, 16, 9, 11), np.float32)}))
    names = [task.name for task in imported(graph, tmp_path).tasks]
    assert sum("block" in name for name in names) == 2  # of the input and of the output


def test_negative_pads_cut(tmp_path):
    model = model_of([helper.make_node("Pad", ["x", "p"], ["y"])], [value("x", (6,))], ["y"], {"p": np.array([-2, 1])})
    assert "Pad" not in rewritten(model, tmp_path, {"x": np.arange(6, dtype=np.float32)})


@pytest.mark.parametrize("ceil_mode", [0])
def test_max_pool_with_indices(tmp_path, ceil_mode):
    attributes = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": ceil_mode}
    nodes = [helper.make_node("MaxPool", ["x"], ["y", "i"], **attributes)]
    model = model_of(nodes, [value("x", (1, 2, 7, 6))], ["y"])
    model.graph.output.append(onnx.ValueInfoProto(name="i"))
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    x = np.random.default_rng(0).standard_normal((1, 2, 7, 6)).astype(np.float32)
    assert "MaxPool" not in rewritten(model, tmp_path, {"x": x})


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_a_size_behind_a_pool_that_rounds_up_is_the_true_one(tmp_path, kind):
    """The last window of a row would begin behind the input: ONNX's inference counts it, ONNX Runtime does not."""
    pool = {"kernel_shape": [1, 1], "strides": [2, 3], "ceil_mode": 1}
    nodes = [
        helper.make_node(kind, ["x"], ["p"], **pool),
        helper.make_node("ConvTranspose", ["p", "w"], ["y"], strides=[1, 2]),
    ]
    rng = np.random.default_rng(0)
    model = model_of(nodes, [value("x", (1, 3, 12, 9))], ["y"], {"w": rng.standard_normal((3, 2, 2, 2), np.float32)})
    counts = rewritten(model, tmp_path, {"x": rng.standard_normal((1, 3, 12, 9), np.float32)})
    assert "ConvTranspose" not in counts


def test_reversed_sequences(tmp_path):
    nodes = [helper.make_node("ReverseSequence", ["x", "n"], ["y"], time_axis=1, batch_axis=0)]
    model = model_of(nodes, [value("x", (2, 4)), value("n", (2,), TensorProto.INT64)], ["y"])
    feed = {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "n": np.array([3, 1])}
    assert "ReverseSequence" not in rewritten(model, tmp_path, feed)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_constant_places_are_counted_from_the_start(tmp_path, axis):
    node = helper.make_node("Gather", ["x", "places"], ["y"], axis=axis)
    model = model_of([node], [value("x", (4, 5))], ["y"], {"places": np.array([[0, -1], [2, -3]])})
    assert close(*run(model, tmp_path, {"x": np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)}))
    assert len(imported(model, tmp_path).tasks) == 1


@pytest.mark.parametrize("places", [0, [0], [[-1, 0], [0, 0]]])
def test_there_is_one_place_in_an_axis_of_one(tmp_path, places):
    """No kernel chooses there: it would be measured with places that are not there."""
    node = helper.make_node("Gather", ["x", "places"], ["picked"], axis=1)
    model = model_of(
        [node, helper.make_node("Neg", ["picked"], ["y"])], [value("x", (4, 1, 5))], ["y"], {"places": np.array(places)}
    )
    x = np.random.default_rng(0).standard_normal((4, 1, 5)).astype(np.float32)
    assert close(*run(model, tmp_path, {"x": x}))
    assert not [task for task in imported(model, tmp_path).tasks if "take" in task.name]


def test_places_that_are_given_count_from_either_end(tmp_path):
    node = helper.make_node("Gather", ["x", "places"], ["y"], axis=1)
    model = model_of([node], [value("x", (4, 5)), value("places", (3,), TensorProto.INT64)], ["y"], {})
    feed = {"x": np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32), "places": np.array([0, -5, 4])}
    assert close(*run(model, tmp_path, feed))


INDEXED = {
    "Gather": ({"axis": 1}, (3, 2), None, lambda x, i, u: np.take(x, i, axis=1)),
    "GatherElements": ({"axis": 1}, (4, 3), None, lambda x, i, u: np.take_along_axis(x, i, axis=1)),
    "GatherND": ({}, (3, 2), None, lambda x, i, u: x[i[:, 0], i[:, 1]]),
    "ScatterElements": ({"axis": 1}, (4, 1), (4, 1), lambda x, i, u: put_along(x, i, u)),
    "ScatterND": ({}, (1, 2), (1,), lambda x, i, u: put_at(x, i, u)),
}


def put_along(x, i, u):
    changed = x.copy()
    np.put_along_axis(changed, i, u, axis=1)
    return changed


def put_at(x, i, u):
    changed = x.copy()
    changed[i[:, 0], i[:, 1]] = u
    return changed


@pytest.mark.parametrize("beyond", [-7, 6, 2**40, -(2**40)])
@pytest.mark.parametrize("kind", INDEXED)
def test_places_outside_the_tensor_are_held_within_it(kind, beyond, tmp_path):
    """ONNX Runtime refuses them; reading and writing anywhere would end the process, or worse."""
    attributes, places, updates, compute = INDEXED[kind]
    rng = np.random.default_rng(2)
    dtype = np.int32 if abs(beyond) < 2**31 and not kind.endswith("ND") else np.int64
    x = rng.standard_normal((4, 5)).astype(np.float32)
    sizes = np.array([4, 5] if kind.endswith("ND") else 5)
    index = rng.integers(-sizes, sizes, places).astype(dtype)
    index.flat[0] = beyond
    update = None if updates is None else rng.standard_normal(updates).astype(np.float32)
    onnx_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    infos = [value("x", x.shape), value("i", places, onnx_type)]
    infos += [] if update is None else [value("u", updates)]
    node = helper.make_node(kind, [info.name for info in infos], ["y"], **attributes)
    feed = {"x": x, "i": index} | ({} if update is None else {"u": update})
    (output,) = run_ours(model_of([node], infos, ["y"]), tmp_path, feed)
    wrapped = np.where(index < 0, index + sizes, index)
    np.testing.assert_array_equal(output, compute(x, np.clip(wrapped, 0, sizes - 1), update))


@pytest.mark.parametrize("kind", ["Gather", "ScatterND"])
def test_constant_places_outside_the_tensor_are_refused(kind, tmp_path):
    attributes, places, updates, _ = INDEXED[kind]
    index = np.full(places, 5)
    infos = [value("x", (4, 5))] + ([] if updates is None else [value("u", updates)])
    names = ["x", "i", *([] if updates is None else ["u"])]
    model = model_of([helper.make_node(kind, names, ["y"], name="n", **attributes)], infos, ["y"], {"i": index})
    with pytest.raises(ModelError, match=r"operator " + kind + r" .*places 5 to 5 are not all within axes of"):
        imported(model, tmp_path)


def test_numbers_up_to_a_computed_limit_are_refused_by_their_own_name(tmp_path):
    infos = [value("n", (), TensorProto.INT64)]
    model = model_of([helper.make_node("Range", ["zero", "n", "one"], ["y"], "count")], infos, ["y"])
    model.graph.initializer.extend(numpy_helper.from_array(np.array(k), name) for k, name in enumerate(("zero", "one")))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(ModelError, match=r"operator Range \(node 'count'\) .*its limit 'n' is computed"):
        imported(model, tmp_path)


def test_gathers_at_constant_places_are_computed_in_the_kernel_that_reads_them(tmp_path):
    """Those at given places are not; what is costly to compute is not computed for each of its readers."""
    rng = np.random.default_rng(0)
    many = np.arange(4096) % 64
    nodes = [
        helper.make_node("Gather", ["x", "places"], ["a"], axis=1),
        helper.make_node("Gather", ["x", "given"], ["b"], axis=1),
        helper.make_node("Mul", ["a", "b"], ["c"]),
        helper.make_node("Tanh", ["c"], ["t"]),
        helper.make_node("Gather", ["t", "many"], ["g"], axis=1),
        helper.make_node("Add", ["g", "shift"], ["y"]),
    ]
    constants = {"places": np.arange(63, -1, -1), "many": many, "shift": rng.standard_normal(4096, np.float32)}
    inputs = [value("x", (8, 80)), value("given", (64,), TensorProto.INT64)]
    model = model_of(nodes, inputs, ["y"], constants)
    feed = {"x": rng.standard_normal((8, 80), np.float32), "given": rng.integers(-80, 80, 64)}
    assert close(*run(model, tmp_path, feed))
    names = sorted(task.name for task in imported(model, tmp_path).tasks)
    assert len(names) == 3
    assert [name.startswith("fused_take") for name in names] == [True, True, False]
