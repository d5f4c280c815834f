"""DeformConv and RoiAlign."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.importer.conversion.operator_catalog import import_graph
from schedules.errors import ModelError
from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def test_one_kernel_with_the_shape_of_the_offsets():
    shapes = {"x": (1, 4, 6, 6), "w": (8, 4, 3, 3), "o": (1, 18, 4, 4), "b": (8,), "m": (1, 9, 4, 4)}
    node = helper.make_node("DeformConv", list(shapes), ["y"], "deform")
    module = import_graph(model_of([node], [value(name, shape) for name, shape in shapes.items()], ["y"], opset=19))
    assert [int(n) for n in module["main"].ret_ty.shape] == [1, 8, 4, 4]
    assert [var.name_hint for var, _ in module.functions_items()].count("deform_conv") == 1


@pytest.mark.parametrize(("mode", "ratio"), [("avg", 2), ("max", 2)])
@pytest.mark.parametrize("where", ["half_pixel", "output_half_pixel"])
def test_regions_of_a_scaled_map(tmp_path, mode, ratio, where):
    """Half a pixel is taken off the scaled region, not off the region before it is scaled."""
    rng = np.random.default_rng(0)
    feed = {
        "x": rng.standard_normal((2, 3, 9, 11)).astype(np.float32),
        "rois": np.array([[2, 3, 20, 30], [0, 0, 44, 36], [-6, 4, 9, 9]], np.float32),
        "batch": np.array([0, 1, 1]),
    }
    attributes = {"coordinate_transformation_mode": where, "output_height": 3, "output_width": 2}
    node = helper.make_node(
        "RoiAlign", list(feed), ["y"], "roi", mode=mode, sampling_ratio=ratio, spatial_scale=0.25, **attributes
    )
    inputs = [value("x", (2, 3, 9, 11)), value("rois", (3, 4)), value("batch", (3,), TensorProto.INT64)]
    assert close(*run(model_of([node], inputs, ["y"]), tmp_path, feed))


def test_as_many_samples_as_fit_a_region_are_refused():
    inputs = [value("x", (2, 3, 9, 11)), value("rois", (3, 4)), value("batch", (3,), TensorProto.INT64)]
    node = helper.make_node("RoiAlign", ["x", "rois", "batch"], ["y"], "roi", output_height=3, output_width=2)
    with pytest.raises(ModelError, match="as many samples as fit a region"):
        import_graph(model_of([node], inputs, ["y"], opset=16))
