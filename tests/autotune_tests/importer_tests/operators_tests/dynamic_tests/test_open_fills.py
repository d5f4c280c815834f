"""Images and regions of an open number, against ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper

from tests.autotune_tests.importer_tests.built import close, run_all
from tests.autotune_tests.importer_tests.operators_tests.dynamic_tests.test_open_sizes import (
    FEEDS,
    INT64,
    NODE,
    behind,
    counted,
)


@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_images_of_an_open_number_are_padded_and_resized(tmp_path, by):
    nodes = [
        NODE("Reshape", ["rows", "images"], ["small"]),
        NODE("Pad", ["small", "pads"], ["padded"]),
        *counted("padded"),
        NODE("Concat", ["n", "larger"], ["sizes"], axis=0),
        NODE("Resize", ["padded", "", *(["scales"] if by == "scales" else ["", "sizes"])], ["y"], mode="linear"),
    ]
    model = behind(nodes)
    for name, array in {
        "images": np.array([-1, 1, 2, 2]),
        "pads": np.array([0, 0, 1, 0, 0, 0, 0, 1]),
        "larger": np.array([1, 6, 6]),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        model.graph.initializer.append(helper.make_tensor(name, kind, array.shape, array))
    for ours, theirs in run_all(model, tmp_path, [{"x": x} for x in FEEDS.values()]):
        assert close(ours, theirs)


def test_regions_of_an_open_number(tmp_path):
    nodes = [
        NODE("Mul", ["rows", "four"], ["corners"]),
        NODE("ConstantOfShape", ["n"], ["maps"], value=helper.make_tensor("v", INT64, [1], [0])),
        NODE("RoiAlign", ["map", "corners", "maps"], ["y"], output_height=2, output_width=2, sampling_ratio=2),
    ]
    model = behind([*counted(), *nodes])
    picture = np.random.default_rng(5).standard_normal((1, 3, 8, 8)).astype(np.float32)
    for name, array in {"four": np.array(4.0, np.float32), "map": picture}.items():
        model.graph.initializer.append(helper.make_tensor(name, 1, array.shape, array.reshape(-1)))
    for ours, theirs in run_all(model, tmp_path, [{"x": x} for x in FEEDS.values()]):
        assert close(ours, theirs)
