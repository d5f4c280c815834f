"""GridSample of every mode, padding and rank, against ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.autotune_tests.importer_tests.built import imported
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

RNG = np.random.default_rng(0)


def sampled(output, **attributes):
    return helper.make_node("GridSample", ["x", "g"], [output], output, **attributes)


MODES = {16: ("bilinear", "nearest", "bicubic"), 20: ("linear", "nearest", "cubic")}


@pytest.mark.parametrize(
    ("opset", "mode", "size"),
    [
        # The two opsets differ in names alone.
        pytest.param(opset, mode, size, marks=[pytest.mark.slow] * ((opset == 16) == (size == (7, 9))))
        for opset, modes in MODES.items()
        for mode in modes
        for size in ((7, 9), (1, 5))
    ],
    ids=str,
)
def test_every_padding_and_alignment(size, opset, mode, tiny_build):
    paddings = [(padding, aligned) for padding in ("zeros", "border", "reflection") for aligned in (0, 1)]
    nodes = [
        sampled(f"{padding}{aligned}", mode=mode, padding_mode=padding, align_corners=aligned)
        for padding, aligned in paddings
        if size[0] > 1 or not (aligned and padding == "reflection")  # ONNX Runtime divides by zero
    ]
    x = RNG.standard_normal((2, 3, *size)).astype(np.float32)
    x[0, 0, 0, 0] = np.inf  # what is outside is zero, whatever is at the edge
    grid = RNG.uniform(-2.5, 2.5, (2, 6, 11, 2)).astype(np.float32)
    grid[0, 0, :5] = [[-1, -1], [1, 1], [0, 0], [-3, 0.5], [0.999, -1.001]]
    model = model_of(
        nodes, [value("x", x.shape), value("g", grid.shape)], [node.output[0] for node in nodes], opset=opset
    )
    feed = {"x": x, "g": grid}
    theirs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    session = tiny_build(model)
    for node, ours, other in zip(nodes, session.run(None, feed), theirs, strict=True):
        np.testing.assert_allclose(ours, other, 1e-4, 1e-4, err_msg=node.name)
    for number in (np.nan, np.inf, -np.inf, 1e30):  # nothing outside of the image is read
        assert all(
            output.shape == (2, 3, 6, 11) for output in session.run(None, {**feed, "g": np.full_like(grid, number)})
        )


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_mirrored_between_the_centres_of_a_single_pixel_all_positions_are_that_pixel(mode, tiny_build):
    x = RNG.standard_normal((2, 3, 1, 5)).astype(np.float32)
    grid = RNG.uniform(-2.5, 2.5, (2, 6, 11, 2)).astype(np.float32)
    node = sampled("y", mode=mode, padding_mode="reflection", align_corners=1)
    model = model_of([node], [value("x", x.shape), value("g", grid.shape)], ["y"], opset=20)
    twice = np.concatenate([x, x], 2)  # ONNX Runtime divides by the distance between the corners
    other = model_of([node], [value("x", twice.shape), value("g", grid.shape)], ["y"], opset=20)
    (theirs,) = onnxruntime.InferenceSession(other.SerializeToString()).run(None, {"x": twice, "g": grid})
    np.testing.assert_allclose(tiny_build(model).run(None, {"x": x, "g": grid})[0], theirs, 1e-4, 1e-4)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_volumes(mode, tiny_build):
    paddings = [(padding, aligned) for padding in ("zeros", "border", "reflection") for aligned in (0, 1)]
    nodes = [
        sampled(f"{padding}{aligned}", mode=mode, padding_mode=padding, align_corners=aligned)
        for padding, aligned in paddings
    ]
    x = RNG.standard_normal((2, 3, 4, 5, 7)).astype(np.float32)
    x[0, 0, 0, 0, 0], x[1, 2, 3, 4, 6] = np.nan, np.inf
    grid = RNG.uniform(-1.6, 1.6, (2, 3, 5, 2, 3)).astype(np.float32)
    grid[0, 0, 0] = [[-1, -1, -1], [1, 1, 1]]
    model = model_of(nodes, [value("x", x.shape), value("g", grid.shape)], [node.output[0] for node in nodes], opset=20)
    feed = {"x": x, "g": grid}
    theirs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    for node, ours, other in zip(nodes, tiny_build(model).run(None, feed), theirs, strict=True):
        np.testing.assert_allclose(ours, other, 1e-4, 1e-4, err_msg=node.name)


def test_positions_that_are_no_pixels_are_the_first_edge(tiny_build):
    x = RNG.standard_normal((1, 2, 3, 4)).astype(np.float32)
    grid = RNG.uniform(-1, 1, (1, 3, 5, 2)).astype(np.float32)
    cases = [(mode, padding) for mode in MODES[20] for padding in ("zeros", "border")]
    nodes = [sampled(f"{mode}{padding}", mode=mode, padding_mode=padding) for mode, padding in cases]
    model = model_of(nodes, [value("x", x.shape), value("g", grid.shape)], [node.output[0] for node in nodes], opset=20)
    reference, session = onnxruntime.InferenceSession(model.SerializeToString()), tiny_build(model)
    for far in (np.nan, np.inf, -np.inf, 1e30):
        grid[0, 1, 2, 0] = grid[0, 2, 4, 1] = far
        feed = {"x": x, "g": grid}
        for node, ours, other in zip(nodes, session.run(None, feed), reference.run(None, feed), strict=True):
            np.testing.assert_allclose(ours, other, 1e-4, 1e-4, err_msg=f"{node.name} {far}")


def test_an_empty_grid_has_no_samples(tiny_build):
    node = sampled("y", mode="linear")
    model = model_of([node], [value("x", (1, 2, 3, 4)), value("g", (1, 0, 5, 2))], ["y"], opset=20)
    feed = {"x": np.ones((1, 2, 3, 4), np.float32), "g": np.ones((1, 0, 5, 2), np.float32)}
    assert tiny_build(model).run(None, feed)[0].shape == (1, 2, 0, 5)


def test_halves_are_sampled_in_fp32(tiny_build):
    node = sampled("y", mode="linear")
    model = model_of([node], [value("x", (1, 2, 6, 5), TensorProto.FLOAT16), value("g", (1, 4, 3, 2))], [], opset=20)
    model.graph.output.append(value("y", (1, 2, 4, 3), TensorProto.FLOAT16))
    rng = np.random.default_rng(0)  # of other numbers, sums in another order may be rounded to another half
    x, grid = rng.standard_normal((1, 2, 6, 5)).astype(np.float16), rng.uniform(-1, 1, (1, 4, 3, 2)).astype(np.float32)
    wide = model_of([node], [value("x", x.shape), value("g", grid.shape)], ["y"], opset=20)
    reference = onnxruntime.InferenceSession(wide.SerializeToString())
    (theirs,) = reference.run(None, {"x": x.astype(np.float32), "g": grid})
    (ours,) = tiny_build(model).run(None, {"x": x, "g": grid})
    np.testing.assert_array_equal(ours, theirs.astype(np.float16))


def test_positions_of_short_rows_lie_together(tmp_path):
    """Rows of 9 positions fill no vector of 16."""
    model = model_of(
        [sampled("y", mode="linear")], [value("x", (5, 1, 6, 7)), value("g", (5, 9, 9, 2))], ["y"], opset=20
    )
    shapes = {task.name: task.shapes for task in imported(model, tmp_path).tasks}
    assert shapes["grid_places"][-1] == shapes["grid_weights"][-1] == (4, 5 * 9 * 9)
