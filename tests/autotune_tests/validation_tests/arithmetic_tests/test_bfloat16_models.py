"""Models of bfloat16 in fp32: what is rounded, and which outputs the reference takes for right."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper, parser

from autotune.host.dtypes import numpy_type, rounded
from autotune.validation import reference_runs
from autotune.validation.arithmetic.bfloat16_models import has_bfloat16, in_fp32
from autotune.validation.reference_runs import Reference
from tests.models.halves import islands

SHORT = numpy_type("bfloat16")

PRODUCT = """<ir_version: 10, opset_import: ["" : 22]>
product (bfloat16[4,8] x) => (bfloat16[4,8] y) { s = MatMul(x, w)  t = Tanh(s)  y = Mul(t, t) }"""


def product():
    """A product by a weight and what follows it, its shapes inferred."""
    model = parser.parse_model(PRODUCT)
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(SHORT)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return onnx.shape_inference.infer_shapes(model)


FEED = {"x": np.random.default_rng(1).standard_normal((4, 8)).astype(SHORT)}


def by_hand(model, between):
    """The product's output, with ``between`` applied to what every operator makes."""
    weight = numpy_helper.to_array(model.graph.initializer[0]).astype(np.float32)
    tanh = between(np.tanh(between(FEED["x"].astype(np.float32) @ weight)))
    return between(tanh * tanh)


def test_no_tensor_of_bfloat16_is_left():
    model = onnx.shape_inference.infer_shapes(islands())
    assert has_bfloat16(model)
    widened = in_fp32(model, rounded=False)
    assert not has_bfloat16(widened)
    assert {tensor.data_type for tensor in widened.graph.initializer} == {TensorProto.FLOAT}
    assert [node.op_type for node in widened.graph.node].count("Cast") == 4  # each of the two casts and its rounding
    assert [node.op_type for node in in_fp32(model, rounded=True).graph.node].count("Cast") == 2 + 2 * 4


def test_the_reference_rounds_only_outputs():
    model = product()
    _, (output,) = Reference(model).outputs(FEED)
    assert output.dtype == SHORT
    expected = by_hand(model, lambda array: array).astype(SHORT).astype(np.float32)
    np.testing.assert_allclose(output.astype(np.float32), expected, rtol=2.0**-7)


def test_casts_round():
    casts = f"s = Cast<to={TensorProto.BFLOAT16}>(x)  y = Cast<to={TensorProto.FLOAT}>(s)"
    text = f'<ir_version: 10, opset_import: ["" : 22]> g (float[64] x) => (float[64] y) {{ {casts} }}'
    model = onnx.shape_inference.infer_shapes(parser.parse_model(text))
    array = np.random.default_rng(2).standard_normal(64).astype(np.float32)
    (plain,) = Reference(model).plain({"x": array})
    np.testing.assert_array_equal(plain, rounded(array, "bfloat16"))


@pytest.mark.parametrize("limit", [reference_runs.WIDENED_BYTES, 0])
def test_outputs_that_every_operator_rounded_are_right_and_others_are_not(limit, monkeypatch):
    """With and without 64 bits, for which large models have no memory."""
    monkeypatch.setattr(reference_runs, "WIDENED_BYTES", limit)
    model = product()
    ours = by_hand(model, lambda array: rounded(array, "bfloat16")).astype(SHORT)
    allowance = Reference(model).allowance(FEED)
    assert allowance.bound == ("fp64" if limit else "spread")
    assert allowance.accepts(0, ours)
    assert not allowance.accepts(0, (ours.astype(np.float32) * 1.1).astype(SHORT))
