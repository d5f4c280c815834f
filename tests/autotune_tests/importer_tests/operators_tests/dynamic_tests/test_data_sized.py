"""Results whose size depends on data, against ONNX Runtime."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

INT64 = TensorProto.INT64


def outputs(model, *names):
    """``model`` with outputs of int64."""
    for info in model.graph.output:
        if info.name in names:
            info.type.tensor_type.elem_type = INT64
    return model


@pytest.mark.parametrize("density", [0.0, 0.4, 1.0])
def test_places_of_what_is_not_zero(tmp_path, density):
    rng = np.random.default_rng(0)
    x = (rng.random((3, 4, 5)) < density).astype(np.float32)
    model = outputs(model_of([helper.make_node("NonZero", ["x"], ["y"])], [value("x", x.shape)], ["y"]), "y")
    ours, theirs = run(model, tmp_path, {"x": x})
    assert close(ours, theirs)
    assert ours[0].shape[1] == int(x.sum())


@pytest.mark.parametrize("axis", [None, 1])
def test_elements_by_a_computed_condition(tmp_path, axis):
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    attributes = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("Greater", ["c", "zero"], ["hit"]),
        helper.make_node("Compress", ["x", "hit"], ["y"], **attributes),
    ]
    model = model_of(nodes, [value("x", x.shape), value("c", (4,))], ["y"], {"zero": np.zeros((), np.float32)})
    feed = {"x": x, "c": np.array([1, -1, 0, 2], np.float32)}
    assert close(*run(model, tmp_path, feed))


@pytest.mark.parametrize(("axis", "in_order"), [(None, 1), (None, 0), (0, 1), (1, 0)])
def test_distinct_elements_and_slices(tmp_path, axis, in_order):
    x = np.random.default_rng(1).integers(-2, 2, (9, 2)).astype(np.float32)
    attributes = {"sorted": in_order} | ({} if axis is None else {"axis": axis})
    node = helper.make_node("Unique", ["x"], ["y", "first", "inverse", "counts"], **attributes)
    model = model_of([node], [value("x", x.shape)], ["y", "first", "inverse", "counts"])
    ours, theirs = run(outputs(model, "first", "inverse", "counts"), tmp_path, {"x": x})
    assert close(ours, theirs)


@pytest.mark.parametrize("centred", [0, 1])
def test_boxes_that_no_better_box_overlaps(tmp_path, centred):
    rng = np.random.default_rng(2)
    boxes = rng.random((2, 400, 4)).astype(np.float32)
    scores = rng.random((2, 3, 400)).astype(np.float32)
    limits = {"most": np.array([7]), "overlap": np.array([0.3], np.float32), "least": np.array([0.2], np.float32)}
    names = ["boxes", "scores", *limits]
    node = helper.make_node("NonMaxSuppression", names, ["y"], center_point_box=centred)
    model = model_of([node], [value("boxes", boxes.shape), value("scores", scores.shape)], ["y"], limits)
    ours, theirs = run(outputs(model, "y"), tmp_path, {"boxes": boxes, "scores": scores})
    assert close(ours, theirs)
    assert 0 < len(ours[0]) <= 2 * 3 * 7
