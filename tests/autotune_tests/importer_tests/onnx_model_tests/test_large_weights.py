"""Which weights onnxslim sees, and the products that are rewritten without it."""

import numpy as np
import onnx
import onnxslim
import pytest
from onnx import helper

from autotune.importer.onnx_model import simplify as simplify_module
from autotune.importer.onnx_model.large_weights import products_to_gemm, unneeded
from autotune.importer.onnx_model.shapes import infer_shapes, skeleton
from autotune.importer.onnx_model.simplify import simplify
from tests.autotune_tests.importer_tests.built import close, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

DRAW = np.random.default_rng(0)


def _weight(*shape):
    return DRAW.standard_normal(shape).astype(np.float32)


def _product(rank=3, after=(), bias=(48,)):
    """A product by a large weight with a bias, and what comes after."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "product"),
        helper.make_node("Add", ["m", "b"], ["s"], "sum"),
        *after,
        helper.make_node("Relu", [after[-1].output[0] if after else "s"], ["y"]),
    ]
    shape = (2, 3, 32)[-rank:]
    constants = {"w": _weight(32, 48), "b": _weight(*bias), "c": np.array(0.5, np.float32)}
    model = model_of(nodes, [value("x", shape)], ["y"], constants)
    infer_shapes(model, "small")
    return model


SCALE = helper.make_node("Mul", ["s", "c"], ["scaled"])


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (_product(), {"w"}),
        (_product(after=[SCALE]), set()),  # onnxslim scales the weight
        (_product(bias=(3, 48)), set()),  # no bias per column
        (
            model_of(
                [helper.make_node("Mul", ["x", "w"], ["y"])], [value("x", (2, 2048))], ["y"], {"w": _weight(2048)}
            ),
            set(),
        ),
        (
            model_of(
                [helper.make_node("Gather", ["w", "i"], ["y"])], [value("i", (4,), 7)], ["y"], {"w": _weight(64, 64)}
            ),
            {"w"},
        ),
        (
            model_of(
                [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Add", ["c", "b"], ["y"])],
                [value("x", (1, 16, 8, 8))],
                ["y"],
                {"w": _weight(16, 16, 3, 3), "b": _weight(1, 16, 1, 1)},
            ),
            set(),
        ),
    ],
    ids=["product", "scaled", "odd bias", "elementwise", "table", "convolution with a bias"],
)
def test_a_weight_is_set_aside_unless_onnxslim_computes_with_it(model, names):
    assert unneeded(model.graph) == names


@pytest.mark.parametrize(("rank", "kinds"), [(3, ["Reshape", "Gemm", "Reshape", "Relu"]), (2, ["Gemm", "Relu"])])
def test_a_product_with_a_bias_becomes_a_gemm_of_the_same_numbers(tmp_path, rank, kinds):
    model = _product(rank)
    small = skeleton(model, {"w"})
    products_to_gemm(small.graph, {"w"})
    assert [node.op_type for node in small.graph.node] == kinds
    onnx.checker.check_model(small)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert close(*run(model, tmp_path, {"x": _weight(*shape)}))


def test_onnxslim_gets_no_large_weights(monkeypatch):
    seen = []
    slim = onnxslim.slim

    def watched(model, **options):
        seen.append(sum(len(tensor.raw_data) for tensor in model.graph.initializer))
        return slim(model, **options)

    monkeypatch.setattr(simplify_module.onnxslim, "slim", watched)
    simplified = simplify(_product())
    assert seen[0] < 1024
    assert {tuple(tensor.dims) for tensor in simplified.graph.initializer} >= {(32, 48), (48,)}


def test_a_weight_that_is_an_output_too_stays_in_sight():
    model = model_of(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", (2, 32))], ["y", "w"], {"w": _weight(32, 48)}
    )
    assert unneeded(model.graph) == set()
