"""RoiAlign, against ONNX Runtime."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def aligned(tmp_path, channels=3, **attributes):
    """Three regions of a scaled map by ours and ONNX Runtime."""
    rng = np.random.default_rng(0)
    feed = {
        "x": rng.standard_normal((2, channels, 9, 11)).astype(np.float32),
        "rois": np.array([[2, 3, 20, 30], [0, 0, 44, 36], [-6, 4, 9, 9]], np.float32),
        "batch": np.array([0, 1, 1]),
    }
    size = {"output_height": 3, "output_width": 2, "spatial_scale": 0.25}
    node = helper.make_node("RoiAlign", list(feed), ["y"], "roi", **size, **attributes)
    kinds = {"batch": TensorProto.INT64}
    inputs = [value(name, array.shape, kinds.get(name, TensorProto.FLOAT)) for name, array in feed.items()]
    return run(model_of([node], inputs, ["y"]), tmp_path, feed)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("where", ["half_pixel", "output_half_pixel"])
def test_regions_of_a_scaled_map(tmp_path, mode, where):
    """Half a pixel is taken off the scaled region, not off the region before it is scaled."""
    assert close(*aligned(tmp_path, mode=mode, sampling_ratio=2, coordinate_transformation_mode=where))


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_as_many_samples_as_fit_a_region(tmp_path, mode):
    assert close(*aligned(tmp_path, mode=mode, sampling_ratio=0, coordinate_transformation_mode="output_half_pixel"))


@pytest.mark.parametrize("channels", [32, 24])
def test_vectors_of_channels(tmp_path, channels):
    assert close(*aligned(tmp_path, channels, sampling_ratio=2))
