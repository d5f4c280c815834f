"""Models that would take ONNX's evaluator minutes are not given to it."""

import onnx
import pytest
from onnx import parser

from autotune.validation.arithmetic.evaluator_cost import ELEMENT_S, MULTIPLICATION_S, evaluation_s
from autotune.validation.arithmetic.reference_engines import EVALUATED_S


def seconds(text):
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> g {text}')
    return evaluation_s(onnx.shape_inference.infer_shapes(model))


def test_a_product_costs_its_multiplications():
    assert seconds("(float[5,6] x, float[6,7] w) => (float[5,7] y) { y = MatMul(x, w) }") == pytest.approx(
        MULTIPLICATION_S * 5 * 6 * 7
    )


@pytest.mark.parametrize(("size", "runs"), [(64, True), (512, False)])
def test_samples_of_a_large_image_cost_too_much(size, runs):
    text = f"(float[1,3,{size},{size}] x, float[1,{size},{size},2] g) => (float[1,3,{size},{size}] y)"
    took = seconds(f"{text} {{ e = Exp(x) y = GridSample(e, g) }}")
    assert took == pytest.approx(ELEMENT_S["GridSample"] * 3 * size * size)
    assert (took <= EVALUATED_S) == runs


def test_bodies_count_and_unknown_sizes_are_one():
    body = "b (int64 i, bool c) => (bool d, float[1,2,4,4] o) { d = Identity(c) o = MaxPool<kernel_shape = [3,3]>(x) }"
    took = seconds(f"(float[1,2,6,6] x, int64 n, bool t) => (float[N,1,2,4,4] y) {{ y = Loop<body = {body}>(n, t) }}")
    assert took == pytest.approx(ELEMENT_S["MaxPool"])
