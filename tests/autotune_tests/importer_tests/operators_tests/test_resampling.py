"""Resize: gathers and weighted sums at constant places."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.host.machine import host_target
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, rewritten, value
from tests.fuzz.engine import Sample, examine

RNG = np.random.default_rng(0)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("where", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
def test_against_onnx_runtime(tmp_path, mode, where):
    more = {"nearest_mode": "floor"} if mode == "nearest" else {}
    node = helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], mode=mode, coordinate_transformation_mode=where, **more
    )
    model = model_of([node], [value("x", (1, 2, 5, 6))], ["y"], {"sizes": np.array([1, 2, 8, 4])})
    assert "Resize" not in rewritten(model, tmp_path, {"x": array(1, 2, 5, 6)})


ROUNDED = {
    "not larger": {"sizes": np.array([7, 7]), "keep_aspect_ratio_policy": "not_larger"},
    "not smaller": {"sizes": np.array([7, 7]), "keep_aspect_ratio_policy": "not_smaller"},
    "scales": {"scales": np.array([1.3, 0.7], np.float32)},
}
"""Cause of a length that is rounded → input and attribute."""

PLACES = ("half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")
PAIRS = [(cause, where) for cause in ROUNDED for where in PLACES if (cause, where) != ("scales", "align_corners")]
"""All but the one whose length ONNX's own suite does not round, and ONNX Runtime does."""


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(("cause", "where"), PAIRS)
def test_a_rounded_length_is_the_length(tmp_path, mode, cause, where):
    more = dict(ROUNDED[cause])
    weights = {name: more.pop(name) for name in ("scales", "sizes") if name in more}
    inputs = ["x", "", "scales"] if "scales" in weights else ["x", "", "", "sizes"]
    if where == "tf_crop_and_resize":
        inputs[1], weights["roi"] = "roi", np.array([0.1, 0.2, 0.9, 1.1], np.float32)
    node = helper.make_node(
        "Resize", inputs, ["y"], mode=mode, axes=[2, 3], coordinate_transformation_mode=where, **more
    )
    model = model_of([node], [value("x", (1, 2, 3, 5))], ["y"], weights, opset=19)
    ours, theirs = run(model, tmp_path, {"x": array(1, 2, 3, 5)})
    assert close(ours, theirs)


def antialiased(shape, sizes, mode="linear", dtype=TensorProto.FLOAT, **more):
    """A model of one antialiased Resize."""
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode=mode, antialias=1, **more)
    model = model_of([node], [value("x", shape, dtype)], ["y"], {"sizes": np.array(sizes)}, opset=18)
    model.graph.output[0].type.tensor_type.elem_type = dtype
    return model


@pytest.mark.parametrize(("shape", "sizes"), [((1, 1, 24, 8), (1, 1, 6, 8)), ((1, 1, 200, 20), (1, 1, 10, 20))])
def test_short_rows_and_very_many_taps_become_a_product(tmp_path, shape, sizes):
    assert rewritten(antialiased(shape, sizes, "cubic"), tmp_path, {"x": array(*shape)})["MatMul"] == 1


SHRUNK = [
    ((1, 3, 40, 50), (1, 3, 16, 19)),
    ((2, 1, 17, 33), (2, 1, 6, 33)),
    ((20, 61), (20, 12)),
    ((1, 1, 20, 61), (1, 1, 23, 12)),
    ((1, 2, 18, 4, 20), (1, 2, 5, 4, 6)),
]


@pytest.mark.parametrize(("shape", "sizes"), SHRUNK)
@pytest.mark.parametrize(("mode", "outside"), [("linear", 0), ("cubic", 0), ("cubic", 1)])
def test_many_taps_are_sums_of_rows(tmp_path, shape, sizes, mode, outside):
    model = antialiased(shape, sizes, mode, exclude_outside=outside)
    assert sum(call.name.startswith("weighted_rows") for call in imported(model, tmp_path).tasks) > 0
    if len(shape) in (2, 4):  # ONNX Runtime antialiases images only
        assert close(*run(model, tmp_path, {"x": array(*shape)}))


def test_bytes_of_many_taps_are_rounded_as_in_onnx_runtime(tmp_path):
    model = antialiased((1, 3, 40, 50), (1, 3, 16, 19), dtype=TensorProto.UINT8)
    ours, theirs = run(model, tmp_path, {"x": RNG.integers(0, 256, (1, 3, 40, 50)).astype(np.uint8)})
    assert np.array_equal(ours[0], theirs[0])


def test_an_image_of_a_convolution_stays_in_blocks(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node(
            "Resize", ["a", "", "scales"], ["b"], mode="linear", coordinate_transformation_mode="half_pixel"
        ),
        helper.make_node("Conv", ["b", "v"], ["y"]),
    ]
    weights = {"w": array(24, 3, 3, 3), "v": array(8, 24, 1, 1), "scales": np.array([1, 1, 2, 3], np.float32)}
    model = model_of(nodes, [value("x", (1, 3, 5, 6))], ["y"], weights)
    assert close(*run(model, tmp_path, {"x": array(1, 3, 5, 6)}))
    assert sum("block" in task.name for task in imported(model, tmp_path).tasks) == 1  # the result


@pytest.mark.parametrize(
    ("shape", "sizes", "more"),
    [
        ((1, 2, 8, 7), (1, 2, 5, 4), {"mode": "linear", "extrapolation_value": 2.5}),
        ((1, 2, 8, 7), (1, 2, 1, 9), {"mode": "linear"}),
        ((1, 8, 7, 3), (1, 5, 6, 3), {"mode": "linear"}),
        ((1, 2, 8, 7), (1, 2, 9, 6), {"mode": "nearest", "extrapolation_value": -1.0}),
        ((1, 2, 8, 7), (1, 2, 5, 3), {"mode": "nearest", "nearest_mode": "round_prefer_ceil"}),
        ((2, 3, 8, 7), (5, 4), {"mode": "nearest", "nearest_mode": "floor", "axes": [2, 3]}),
    ],
)
def test_a_computed_region_is_cut_out(tmp_path, shape, sizes, more):
    axes = more.get("axes", range(4))
    node = helper.make_node(
        "Resize", ["x", "r", "", "sizes"], ["y"], coordinate_transformation_mode="tf_crop_and_resize", **more
    )
    infos = [value("x", shape), value("r", (2 * len(sizes),))]
    model = model_of([node], infos, ["y"], {"sizes": np.array(sizes)}, opset=18)
    spatial = (1, 2) if shape[3] == 3 else (2, 3)
    for start, end in ((0.11, 0.83), (-0.21, 1.13), (0.93, 0.31)):
        ends = [[edge if axis in spatial else whole for axis in axes] for edge, whole in ((start, 0), (end, 1))]
        feed = {"x": array(*shape), "r": np.array(ends, np.float32).reshape(-1)}
        folder = tmp_path / str(start)
        folder.mkdir()
        assert close(*run(model, folder, feed))


def test_four_pixels_of_a_computed_region_are_refused(tmp_path):
    more = {"mode": "cubic", "coordinate_transformation_mode": "tf_crop_and_resize"}
    node = helper.make_node("Resize", ["x", "r", "", "sizes"], ["y"], "crop", **more)
    infos = [value("x", (1, 2, 5, 6)), value("r", (8,))]
    with pytest.raises(ModelError, match=r"node 'crop'.*its region of interest 'r' is computed and its mode is cubic"):
        imported(model_of([node], infos, ["y"], {"sizes": np.array([1, 2, 8, 4])}), tmp_path)


@pytest.mark.parametrize(
    ("kind", "scale"), [(TensorProto.UINT8, 1), (TensorProto.INT32, 1), (TensorProto.INT32, 1_000_003)]
)
def test_a_sum_of_integers_that_is_whole_is_not_truncated_to_the_number_below(kind, scale):
    node = helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], mode="linear", coordinate_transformation_mode="align_corners"
    )
    model = model_of([node], [value("x", (1, 32, 2, 2), kind)], ["y"], {"sizes": np.array([1, 32, 3, 7])})
    model.graph.output[0].type.tensor_type.elem_type = kind
    x = np.repeat(scale * np.arange(1, 225, 7), 4).reshape(1, 32, 2, 2).astype(helper.tensor_dtype_to_np_dtype(kind))
    for seed in range(3):  # kernels that add a product to a sum without rounding it, and others
        assert examine(Sample(model, {"x": x}), seed, str, host_target()).outcome == "same"
