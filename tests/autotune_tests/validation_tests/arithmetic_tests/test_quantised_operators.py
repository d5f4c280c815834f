"""Quantised operators spelled out make what ONNX Runtime makes, up to a rounding, and noise moves them."""

import numpy as np
import pytest
from onnx import helper

from autotune.validation.arithmetic.quantised_operators import SPELLED, spelled
from autotune.validation.reference_runs import Reference
from autotune.validation.widen import NOISE, widen
from tests.autotune_tests.validation_tests.test_widen import FLOAT, model_of, run, value

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1, 4, 6, 6)).astype(np.float32)
ROWS = RNG.standard_normal((1, 4, 6)).astype(np.float32)
S, Z = {"xs": np.float32(0.02), "ys": np.float32(0.047)}, {"xz": np.uint8(128), "yz": np.uint8(120)}
BYTES = RNG.integers(-127, 128, (5, 4, 3, 3), np.int8)
SCALES = np.linspace(0.01, 0.02, 5, dtype=np.float32)
BIAS = RNG.integers(-500, 500, 5, np.int32)
WEIGHTS = {"ws": SCALES, "wz": np.zeros(5, np.int8), "b": BIAS}
ONE = {"ws": np.float32(0.01), "wz": np.uint8(7)}
MATRIX = RNG.integers(0, 256, (6, 5), np.uint8)

CASES = {
    "QLinearConv": (["q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], {"pads": [1] * 4}, X, {"w": BYTES, **WEIGHTS}),
    "QLinearMatMul": (["q", "xs", "xz", "w", "ws", "wz", "ys", "yz"], {}, ROWS, {"w": MATRIX, **ONE}),
    "QLinearAdd": (["q", "xs", "xz", "q", "xs", "xz", "ys", "yz"], {}, X, {}),
    "QLinearMul": (["q", "xs", "xz", "q", "xs", "xz", "ys", "yz"], {}, X, {}),
    "QLinearSigmoid": (["q", "xs", "xz", "ys", "yz"], {}, X, {}),
    "QLinearLeakyRelu": (["q", "xs", "xz", "ys", "yz"], {"alpha": 0.1}, X, {}),
    "QLinearAveragePool": (["q", "xs", "xz", "ys", "yz"], {"kernel_shape": [2, 2]}, X, {}),
    "QLinearGlobalAveragePool": (["q", "xs", "xz", "ys", "yz"], {"channels_last": 0}, X, {}),
    "QLinearConcat": (["ys", "yz", "q", "xs", "xz", "q", "xs", "xz"], {"axis": 1}, X, {}),
    "QGemm": (
        ["q", "xs", "xz", "w", "ws", "wz", "b", "ys", "yz"],
        {"transB": 0},
        ROWS[0],
        {"w": MATRIX, **ONE, "b": BIAS},
    ),
}
"""Operator → its inputs, attributes, x, and weights besides the scales and zero points."""


def small(kind):
    """A model that quantises x, has one operator of ``kind``, and gives what that makes as floats."""
    inputs, attributes, x, weights = CASES[kind]
    domain = next(domain for domain, name in SPELLED if name == kind)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node(kind, inputs, ["p"], domain=domain, **attributes),
        helper.make_node("DequantizeLinear", ["p", "ys", "yz"], ["y"]),
    ]
    return model_of(nodes, [value("x", FLOAT, x.shape)], [value("y", FLOAT, None)], {**S, **Z, **weights}), x


def test_every_operator_has_a_case():
    assert {name for _, name in SPELLED} == {*CASES}


@pytest.mark.parametrize("kind", sorted(CASES))
def test_it_makes_what_onnx_runtime_makes(kind):
    model, x = small(kind)
    (theirs,) = run(model, x=x)
    wide, noisy = widen(model)
    assert noisy
    assert kind not in {node.op_type for node in wide.graph.node}
    (exact,) = run(wide, x=x.astype(np.float64), **{NOISE: 0.0})
    assert np.ptp(theirs) > 0.3
    apart = np.abs(theirs - exact) / S["ys"]
    assert np.max(apart) < 1.01  # of two right roundings one may go up and the other down
    assert np.mean(apart > 0.5) < 0.02
    (moved,) = run(wide, x=x.astype(np.float64), **{NOISE: 2e4})
    assert not np.array_equal(moved, exact)


def test_the_allowance_of_such_a_model_is_from_64_bits():
    model, x = small("QLinearAdd")
    allowance = Reference(model).allowance({"x": x})
    assert (allowance.bound, allowance.reason) == ("fp64", "")


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Add", ["x", "y"], ["z"]),
        helper.make_node("QLinearAdd", list("abcdefgh"), ["z"], domain="other"),
        helper.make_node("QGemm", list("abcdef"), ["z"], domain="com.microsoft", alpha=2.0),
        helper.make_node("QLinearAveragePool", list("abcde"), ["z"], domain="com.microsoft", channels_last=1),
    ],
    ids=lambda node: f"{node.domain}.{node.op_type}",
)
def test_other_operators_and_forms_are_left(node):
    assert spelled(node) == []


def test_a_gemm_without_a_scale_of_its_result_makes_a_float():
    node = helper.make_node("QGemm", list("abcdef"), ["z"], domain="com.microsoft")
    operators = [part.op_type for part, _ in spelled(node)]
    assert operators == ["DequantizeLinear", "DequantizeLinear", "Gemm"]
    assert spelled(node)[-1][0].output == ["z"]
