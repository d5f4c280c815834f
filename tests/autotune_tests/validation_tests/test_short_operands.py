"""Artifacts of bf16 are compared with what the rounding of operands must cost: right ones pass, wrong ones do not."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from autotune.importer.load import load_model
from autotune.importer.program import simplify
from autotune.options import FP32, Precision
from autotune.validation.reference_runs import Reference, reference_outputs
from autotune.validation.short_operands import ShortOperands, product_nodes
from autotune.validation.verify import compare
from tests.models.catalog import cached

BF16, TF32 = Precision(None), Precision(None, "tf32")


def simple(name):
    return simplify(load_model(cached(name), {}))


def feed_of(model):
    rng = np.random.default_rng(0)
    return {
        value.name: rng.standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim], dtype=np.float32)
        for value in model.graph.input
    }


def verdict(model, ours, feed, precision=BF16):
    reference = Reference(model)
    name, theirs = reference.outputs(feed)
    return compare(name, ours, theirs, lambda: reference.allowance(feed, str(precision)))


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_encoder", "tiny_gated"])
def test_right_roundings_pass_as_bf16_and_not_as_fp32(name, stored):
    model = simple(name)
    feed = feed_of(model)
    ours = reference_outputs(ShortOperands(model).rounded(BF16, stored), feed)[1]
    result = verdict(model, ours, feed)
    assert result.passed
    assert result.bound == "bf16"
    assert 1e-4 < result.rms_rel_err < 0.05
    assert not verdict(model, ours, feed, FP32).passed


@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_encoder"])
def test_tf32_is_rounded_in_fp32_arithmetic(name):
    """Weights here, activations by ONNX Runtime: to a hundredth of what bf16 costs, and not to nothing."""
    model = simple(name)
    feed = feed_of(model)
    exact = reference_outputs(model, feed)[1]
    tf32, bf16 = (
        reference_outputs(ShortOperands(model).rounded(precision, True), feed)[1] for precision in (TF32, BF16)
    )
    result = verdict(model, tf32, feed, TF32)
    assert result.passed
    assert result.bound == "tf32"
    for long, short, shorter in zip(exact, tf32, bf16, strict=True):
        assert 0 < np.abs(long - short).max() < np.abs(long - shorter).max() / 3
    assert not verdict(model, bf16, feed, TF32).passed


@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_a_wrong_weight_fails(factor):
    """Of one of four products."""
    model = simple("tiny_cnn")
    feed = feed_of(model)
    wrong = onnx.ModelProto()
    wrong.CopyFrom(model)
    name = product_nodes(wrong)[1].input[1]
    weight = next(tensor for tensor in wrong.graph.initializer if tensor.name == name)
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(factor), name))
    ours = reference_outputs(ShortOperands(wrong).rounded(BF16, True), feed)[1]
    assert not verdict(model, ours, feed).passed


def test_fewer_bits_than_bf16_fail():
    """Weights cut to 3 bits behind the point, where bf16 has 7."""
    model = simple("tiny_cnn")
    feed = feed_of(model)
    coarse = onnx.ModelProto()
    coarse.CopyFrom(model)
    for tensor in coarse.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            bits = numpy_helper.to_array(tensor).view(np.uint32) & np.uint32(0xFFF00000)
            tensor.CopyFrom(numpy_helper.from_array(bits.view(np.float32), tensor.name))
    assert not verdict(model, reference_outputs(coarse, feed)[1], feed).passed


def test_only_chosen_products_are_rounded():
    model = simple("tiny_cnn")
    model_rounded = ShortOperands(model).rounded(Precision(frozenset({1})), stored=False).whole()
    rounded = [any(name.endswith("/bf16") for name in node.input) for node in product_nodes(model_rounded)]
    assert rounded == [False, True, False, False]
    onnx.checker.check_model(model_rounded)
