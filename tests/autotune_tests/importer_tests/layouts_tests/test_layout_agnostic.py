"""Operators that keep the layout of their operand."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.importer.conversion.operator_catalog import import_graph
from autotune.importer.layouts.assign import assign_layouts
from autotune.importer.layouts.blocked import Blocked
from autotune.importer.layouts.channels_last import ChannelsLast
from tests.autotune_tests.importer_tests.built import close, imported, run, run_ours
from tests.autotune_tests.importer_tests.layouts_tests.test_assign import calls
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written


def behind_a_convolution(nodes, channels, shape, layouts, weights=None):
    """Calls of a convolution that makes (1, channels, 4, 4), then ``nodes`` from "c" to "y"."""
    weights = {"w": np.ones((channels, 8, 1, 1), np.float32), **(weights or {})}
    model = model_of([helper.make_node("Conv", ["x", "w"], ["c"]), *nodes], [value("x", (1, 8, 4, 4))], [], weights)
    model.graph.output.append(value("y", shape))
    return calls(assign_layouts(import_graph(model), layouts)[0])


@pytest.mark.parametrize(("kind", "channels", "unblocked"), [("Relu", 12, 1), ("Sqrt", 16, 1), ("Sqrt", 12, 1)])
def test_one_conversion_behind_an_elementwise_operator(kind, channels, unblocked):
    nodes = [helper.make_node(kind, ["c"], ["e"]), helper.make_node("Neg", ["e"], ["y"])]
    assert behind_a_convolution(nodes, channels, (1, channels, 4, 4), Blocked(8))["unblock"] == unblocked


@pytest.mark.parametrize("constant", [(), (1,), (16, 1, 1), (1, 1, 4, 4), (1, 16, 4, 4)])
@pytest.mark.parametrize("make", [lambda: Blocked(8), ChannelsLast])
def test_constants_are_given_the_layout_of_the_image(constant, make):
    nodes = [helper.make_node("Mul", ["c", "k"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    counts = behind_a_convolution(nodes, 16, (1, 16, 4, 4), make(), {"k": np.full(constant, 2, np.float32)})
    assert counts["relax.multiply"] == 1
    assert counts["unblock"] + counts["relax.permute_dims"] == (1 if counts["unblock"] else 2)


def test_a_mean_over_the_image_stays_native():
    nodes = [helper.make_node("ReduceMean", ["c"], ["m"], axes=[2, 3]), helper.make_node("Mul", ["c", "m"], ["y"])]
    assert behind_a_convolution(nodes, 16, (1, 16, 4, 4), Blocked(8))["unblock"] == 1


def test_few_channels_are_pooled_plain():
    nodes = [helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[2, 2])]
    assert behind_a_convolution(nodes, 4, (1, 4, 3, 3), Blocked(8))["pool"] == 0
    assert behind_a_convolution(nodes, 8, (1, 8, 3, 3), Blocked(8))["pool"] == 1


@pytest.mark.parametrize("includes", [0, 1])
@pytest.mark.parametrize(
    ("size", "strides", "pads", "ceil"),
    [([3, 3], [1, 1], [1, 1, 1, 1], 0), ([3, 2], [2, 2], [1, 0, 1, 1], 1), ([2, 2], [2, 2], [0, 0, 0, 0], 1)],
)
def test_averages_of_few_channels_are_sums_of_images(tmp_path, size, strides, pads, ceil, includes):
    how = {"kernel_shape": size, "strides": strides, "pads": pads, "ceil_mode": ceil, "count_include_pad": includes}
    model = model_of([helper.make_node("AveragePool", ["x"], ["y"], **how)], [value("x", (2, 3, 11, 13))], ["y"])
    x = np.random.default_rng(0).standard_normal((2, 3, 11, 13)).astype(np.float32)
    (output,), (expected,) = run(model, tmp_path, {"x": x})
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
    spaces = imported(model, tmp_path).spaces.values()
    assert {space.identity.partition("/")[0] for space in spaces} == {"elementwise"}


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_scale_known_when_the_model_runs_joins_the_product(shape, tmp_path):
    weights = {"w": np.arange(-64, 64, dtype=np.int8).reshape(8, 16), "b": np.ones(16, np.float32)}
    nodes = [
        helper.make_node("MatMulInteger", ["x", "w", "z"], ["p"]),
        helper.make_node("Cast", ["p"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["y"]),
    ]
    infos = [value("x", (4, 8), TensorProto.UINT8), value("z", (), TensorProto.UINT8), value("s", shape)]
    model = model_of(nodes, infos, ["y"], weights)
    x = np.random.default_rng(0).integers(0, 256, (4, 8)).astype(np.uint8)
    feed = {"x": x, "z": np.array(7, np.uint8), "s": np.full(shape, 0.5, np.float32)}
    expected = (x.astype(np.int32) - 7) @ weights["w"].astype(np.int32) * 0.5 + 1
    np.testing.assert_array_equal(run_ours(model, tmp_path, feed)[0], expected.astype(np.float32))
    assert len(imported(model, tmp_path).kernels) == 1


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("step", [1, -1], ids=["in order", "reversed"])
def test_images_behind_a_convolution_are_sliced_along_any_axis(tmp_path, axis, step):
    """Along all axes but that of channels, which is another one there, they stay native."""
    whole = np.iinfo(np.int64)
    bounds = (1, whole.max) if step > 0 else (-1, whole.min)
    weights = {name: np.array([n]) for name, n in zip("seat", (*bounds, axis, step), strict=True)}
    weights["w"] = np.random.default_rng(0).standard_normal((32, 8, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Slice", ["c", *"seat"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    model = model_of(nodes, [value("x", (3, 8, 5, 6))], ["y"], weights)
    written(model, tmp_path)
    assert close(
        *run(model, tmp_path, {"x": np.random.default_rng(1).standard_normal((3, 8, 5, 6)).astype(np.float32)})
    )


@pytest.mark.parametrize("axis", [0, 2, 3])
@pytest.mark.parametrize("channels", [16, 12])
@pytest.mark.parametrize("make", [lambda: Blocked(8), ChannelsLast])
def test_images_are_cut_and_joined_as_they_are(axis, channels, make):
    weights = {name: np.array([n]) for name, n in zip("sea", (0, 1, axis), strict=True)}
    nodes = [
        helper.make_node("Slice", ["c", *"sea"], ["r"]),
        helper.make_node("Concat", ["c", "r", "c"], ["y"], axis=axis),
    ]
    shape = [1, channels, 4, 4]
    shape[axis] = 2 * shape[axis] + 1
    counts = behind_a_convolution(nodes, channels, tuple(shape), make(), weights)
    assert counts["relax.concat"] == counts["relax.strided_slice"] == 1
    assert counts["unblock"] + counts["relax.permute_dims"] == (1 if counts["unblock"] else 2)


@pytest.mark.parametrize(("number", "channels", "native"), [(0.0, 12, True), (3.0, 16, True), (3.0, 12, False)])
def test_channels_that_do_not_exist_stay_zeros_in_a_border(number, channels, native, tmp_path):
    weights = {
        "w": np.random.default_rng(0).standard_normal((channels, 8, 1, 1)).astype(np.float32),
        "v": np.random.default_rng(1).standard_normal((5, channels, 3, 3)).astype(np.float32),
        "p": np.array([0, 0, 1, 2, 0, 0, 0, 1]),
        "n": np.array(number, np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Pad", ["c", "p", "n"], ["q"]),
        helper.make_node("Exp", ["q"], ["e"]),
        helper.make_node("Conv", ["e", "v"], ["y"]),
    ]
    model = model_of(nodes, [value("x", (1, 8, 5, 6))], ["y"], weights)
    layouts = Blocked(8)
    counts = calls(assign_layouts(import_graph(model), layouts)[0])
    assert sum(count for name, count in counts.items() if name.startswith("unblock")) == (1 if native else 2)
    written(model, tmp_path)
    assert close(
        *run(model, tmp_path, {"x": np.random.default_rng(2).standard_normal((1, 8, 5, 6)).astype(np.float32)})
    )
