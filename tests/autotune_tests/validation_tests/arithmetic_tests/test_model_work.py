"""Shapes that inference does not know are those of a run."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autotune.validation.arithmetic.model_work import conv_shapes, value_shapes
from autotune.validation.reference_runs import reference_outputs
from autotune.validation.widen import widen

HALF = TensorProto.FLOAT16
W = np.random.default_rng(0).standard_normal((4, 2, 3)).astype(np.float16)


def cut_to_a_computed_length(length=12):
    """A convolution of as many steps of x as there are numbers above 0 in ``positive``, a weight that seems to vary."""
    nodes = [
        helper.make_node("NonZero", ["positive"], ["places"]),
        helper.make_node("Shape", ["places"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["end"]),
        helper.make_node("Slice", ["x", "zero", "end", "axis"], ["cut"]),
        helper.make_node("Conv", ["cut", "w"], ["y"], "conv", kernel_shape=[3]),
    ]
    weights = {
        "positive": np.arange(9, dtype=np.float32),
        **{name: np.array([number]) for name, number in (("one", 1), ("zero", 0), ("axis", 2))},
        "w": W,
    }
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    x, y = helper.make_tensor_value_info("x", HALF, (1, 2, length)), helper.make_tensor_value_info("y", HALF, None)
    graph = helper.make_graph(nodes, "cut", [x], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def test_only_unknown_shapes_are_asked_for():
    model = cut_to_a_computed_length()
    shapes = value_shapes(model)
    assert None in shapes["cut"]
    assert conv_shapes(model, shapes) == {"cut": (1, 2, 8), "y": (1, 4, 6)}
    assert conv_shapes(model, {**shapes, "cut": (1, 2, 8), "y": (1, 4, 6)}) == {}


def test_open_inputs_and_models_that_do_not_run_have_none():
    model = cut_to_a_computed_length()
    assert conv_shapes(model, {**value_shapes(model), "x": (None, 2, 12)}) == {}
    short = cut_to_a_computed_length(length=2)  # fewer steps than the convolution takes
    assert conv_shapes(short, value_shapes(short)) == {}


def test_such_a_model_is_computed_in_64_bits():
    x = np.random.default_rng(1).standard_normal((1, 2, 12)).astype(np.float16)
    wide, _ = widen(cut_to_a_computed_length())
    _, (exact,) = reference_outputs(wide, {"x": x.astype(np.float64)})
    windows = np.lib.stride_tricks.sliding_window_view(x[..., :8].astype(np.float64), 3, 2)
    np.testing.assert_allclose(exact, np.einsum("nctk,ock->not", windows, W.astype(np.float64)), rtol=1e-12)
