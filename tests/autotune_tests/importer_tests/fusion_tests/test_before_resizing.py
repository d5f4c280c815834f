"""Convolutions of single pixels, before the image is enlarged."""

import numpy as np
import pytest
from onnx import helper

from autotune.importer.load import load_model
from autotune.importer.program import simplify
from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written

SMALL = (1, 32, 6, 5)


def resized(image, to, scale, mode="linear", rank=4, **attributes):
    """A Resize of ``image`` by ``scale`` along its axes behind the channels."""
    scales = [1.0, 1.0, *[float(scale)] * (rank - 2)]
    return helper.make_node("Resize", [image, "", f"scales_{to}"], [to], mode=mode, **attributes), {
        f"scales_{to}": np.array(scales, np.float32)
    }


def weight(filters, channels, *taps):
    rng = np.random.default_rng(filters + channels)
    return (rng.standard_normal((filters, channels, *taps)) / np.sqrt(channels)).astype(np.float32)


def convolved(graph, tmp_path):
    """Shapes of the images that the simplified model convolves, in order."""
    simple = simplify(load_model(written(graph, tmp_path), {}))
    known = (*simple.graph.value_info, *simple.graph.input, *simple.graph.output)
    shapes = {value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim) for value in known}
    return [shapes[node.input[0]] for node in simple.graph.node if node.op_type == "Conv"]


@pytest.mark.parametrize(
    ("mode", "attributes"),
    [
        ("nearest", {}),
        ("linear", {}),
        ("linear", {"coordinate_transformation_mode": "align_corners"}),
        ("cubic", {"coordinate_transformation_mode": "pytorch_half_pixel"}),
    ],
)
@pytest.mark.parametrize(("joined", "axis"), [((), 1), (("s", "u", "s"), 1), (("s", "s", "u"), -3)])
def test_the_small_image_is_convolved(mode, attributes, joined, axis, tmp_path):
    resize, numbers = resized("x", "u", 2, mode, **attributes)
    rng = np.random.default_rng(0)
    nodes, inputs, image = [resize], [value("x", SMALL)], "u"
    if joined:
        nodes += [helper.make_node("Concat", joined, ["j"], axis=axis)]
        inputs, image = [*inputs, value("s", (1, 3, 12, 10))], "j"
    numbers |= {"w": weight(16, 38 if joined else 32, 1, 1), "b": rng.standard_normal(16).astype(np.float32)}
    nodes += [helper.make_node("Conv", [image, "w", "b"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    graph = model_of(nodes, inputs, ["y"], numbers)
    assert SMALL in convolved(graph, tmp_path)
    feed = {"x": rng.standard_normal(SMALL).astype(np.float32)}
    feed |= {"s": rng.standard_normal((1, 3, 12, 10)).astype(np.float32)} if joined else {}
    assert close(*run(graph, tmp_path, feed))


def test_several_images_of_different_sizes(tmp_path):
    """As heads of segmentation networks join them."""
    nodes, numbers, names = [], {}, []
    for level, scale in enumerate((1, 2, 4)):
        if scale == 1:
            names.append("x0")
            continue
        resize, more = resized(f"x{level}", f"u{level}", scale)
        nodes, numbers = [*nodes, resize], {**numbers, **more}
        names.append(f"u{level}")
    nodes += [helper.make_node("Concat", names, ["j"], axis=1), helper.make_node("Conv", ["j", "w"], ["y"])]
    shapes = [(2, 32, 8 // scale, 8 // scale) for scale in (1, 2, 4)]
    inputs = [value(f"x{level}", shape) for level, shape in enumerate(shapes)]
    graph = model_of(nodes, inputs, ["y"], {**numbers, "w": weight(24, 96, 1, 1)})
    assert sorted(convolved(graph, tmp_path)) == sorted(shapes)
    rng = np.random.default_rng(1)
    feed = {f"x{level}": rng.standard_normal(shape).astype(np.float32) for level, shape in enumerate(shapes)}
    assert close(*run(graph, tmp_path, feed))


def test_lines(tmp_path):
    resize, numbers = resized("x", "u", 3, "nearest", 3)
    nodes = [resize, helper.make_node("Conv", ["u", "w"], ["y"])]
    graph = model_of(nodes, [value("x", (1, 32, 7))], ["y"], {**numbers, "w": weight(8, 32, 1)})
    assert close(*run(graph, tmp_path, {"x": np.random.default_rng(2).standard_normal((1, 32, 7)).astype(np.float32)}))


@pytest.mark.parametrize(
    ("channels", "filters", "scale", "taps", "attributes"),
    [
        (32, 8, 0.5, 1, {}),
        (32, 8, 2, 3, {}),
        (32, 8, 2, 1, {"strides": [2, 2]}),
        (32, 8, 2, 1, {"pads": [0, 1, 0, 0]}),
        (32, 8, 2, 1, {"group": 2}),
        (8, 8, 2, 1, {}),
        (32, 96, 2, 1, {}),
    ],
)
def test_what_stays(channels, filters, scale, taps, attributes, tmp_path):
    """Images that shrink, filters of several taps, borders, groups; few channels, and many filters."""
    resize, numbers = resized("x", "u", scale)
    own = weight(filters, channels // attributes.get("group", 1), taps, taps)
    nodes = [resize, helper.make_node("Conv", ["u", "w"], ["y"], **attributes)]
    graph = model_of(nodes, [value("x", (1, channels, 6, 6))], ["y"], {**numbers, "w": own})
    assert (1, channels, 6, 6) not in convolved(graph, tmp_path)


def test_an_enlarged_image_that_others_read_stays(tmp_path):
    resize, numbers = resized("x", "u", 2)
    nodes = [resize, helper.make_node("Conv", ["u", "w"], ["y"]), helper.make_node("Relu", ["u"], ["z"])]
    graph = model_of(nodes, [value("x", SMALL)], ["y", "z"], {**numbers, "w": weight(8, 32, 1, 1)})
    assert convolved(graph, tmp_path) == [(1, 32, 12, 10)]
