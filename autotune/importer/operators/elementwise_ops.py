"""Element by element operators that Relax's importer lacks or gets wrong, and a few that only look like them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto
from tvm import relax, te, tirx

from autotune.importer.rewriting.emit import FLOAT, INT64, Emit, Node
from autotune.importer.rewriting.registry import Inputs, converts, rewrites
from autotune.importer.rewriting.relax_values import dtype_of

DOUBLE = TensorProto.DOUBLE

ARTANH = (0.2817465726, 0.2796141884, 0.4002485372, 0.6666631594, 2.0000000079)
"""2 artanh s ÷ s as a polynomial of s² up to 1/9, highest degree first: fitted at Chebyshev's points, relative error
4e-9."""

MISH_LIMITS = {int(DOUBLE): 40, int(TensorProto.FLOAT16): 5}
"""Types whose largest argument of a power is not 20; powers of it are finite."""


@rewrites("Sum")
def sum_of_tensors(node: Node, e: Emit) -> list[str] | None:
    """Two at a time: Relax's importer would stack all inputs and reduce them."""
    total, *others = map(str, node.proto.input)
    for term in others:
        total = e.op("Add", total, term)
    return [total if others else e.op("Identity", total)]


@rewrites("Celu")
def celu(node: Node, e: Emit) -> list[str] | None:
    """X above 0, else α · Elu(x ÷ α), where the division cannot overflow to infinity and be taken for x.

    ONNX's own definition makes an axis of a single number.
    """
    x, alpha = node.input(0), e.like(node.attr("alpha", 1.0))
    below = e.op("Mul", e.op("Elu", e.op("Div", x, alpha)), alpha)
    return [e.op("Where", e.op("Greater", x, e.like(0)), x, below)]


@rewrites("PRelu")
def prelu(node: Node, e: Emit) -> list[str] | None:
    """A LeakyRelu where one constant slope serves all elements, which any layout keeps; of integers a choice.

    A slope of 0 stays: PRelu makes NaN of -infinity, and a LeakyRelu of that slope is a Relu.
    """
    slope = node.array(1)
    if slope is not None and slope.size == 1 and slope.any() and node.type(0) in (FLOAT, TensorProto.FLOAT16):
        return [e.op("LeakyRelu", node.input(0), alpha=float(slope.reshape(-1)[0]))]
    if node.dtype(0).kind not in "iu":
        return None
    x = node.input(0)
    return [e.op("Where", e.op("Less", x, e.like(0)), e.op("Mul", x, node.input(1)), x)]


@rewrites("Not")
def negation(node: Node, e: Emit) -> list[str] | None:
    """A comparison: fused behind one, TVM's own flips all eight bits of a boolean and leaves it true."""
    return [e.op("Equal", node.input(0), e.const(np.array(False)))]


@rewrites("LessOrEqual", "GreaterOrEqual")
def with_itself(node: Node, e: Emit) -> list[str] | None:
    """A float compared with itself asks whether it is a number; TVM takes the answer for yes."""
    if node.input(0) != node.input(1) or node.dtype(0).kind not in "fV":
        return None
    return [e.op("Not", e.op("IsNaN", node.input(0)))]


@rewrites("And", "Or", "Xor", "Equal", "Where")
def of_booleans(node: Node, e: Emit) -> list[str] | None:
    """By way of uint8: TVM loads booleans as bytes and compares into bits, and LLVM refuses to mix the two."""
    if node.kind == "Equal" and (result := with_itself(node, e)) is not None:
        return result
    a, b = (1, 2) if node.kind == "Where" else (0, 1)
    if node.type(b) != TensorProto.BOOL or (node.array(a) is not None and node.array(b) is not None):
        return None
    one, other = (e.cast(node.input(index), TensorProto.UINT8) for index in (a, b))
    if node.kind == "Where":
        return [e.cast(e.op("Where", node.input(0), one, other), TensorProto.BOOL)]
    if node.kind in ("Equal", "Xor"):
        same = e.op("Equal", one, other)
        return [same if node.kind == "Equal" else e.op("Not", same)]
    return [e.cast(e.op("Mul" if node.kind == "And" else "Max", one, other), TensorProto.BOOL)]


@rewrites("ReduceMax", "ReduceMin", "Unsqueeze")
def through_integers(node: Node, e: Emit) -> list[str] | None:
    """Booleans by way of integers, for the same reason."""
    is_view = node.kind == "Unsqueeze"
    if node.type(0) != TensorProto.BOOL or (is_view and node.array(0) is not None):
        return None
    if not is_view and node.axes(len(node.shape(0))) == []:
        return [e.op("Identity", node.input(0))]
    wide = e.cast(node.input(0), TensorProto.UINT8 if is_view else TensorProto.INT32)
    return [e.cast(e.op(node.kind, wide, *node.proto.input[1:], **node.attributes), TensorProto.BOOL)]


@rewrites("Cosh", "Sinh")
def hyperbolic(node: Node, e: Emit) -> list[str] | None:
    """(e^x ± e^−x) ÷ 2 by squares of e^±x/2, since e^x is infinite before its half is."""
    half = e.op("Mul", node.input(0), e.like(0.5))
    roots = (e.op("Exp", half), e.op("Exp", e.op("Neg", half)))
    halves = [e.op("Mul", e.op("Mul", root, e.like(0.5)), root) for root in roots]
    return [e.op("Add" if node.kind == "Cosh" else "Sub", *halves)]


@rewrites("ThresholdedRelu")
def thresholded(node: Node, e: Emit) -> list[str] | None:
    """A choice: Relax's product with 0 makes NaN of an infinity below the threshold."""
    x = node.input(0)
    return [e.op("Where", e.op("Greater", x, e.like(node.attr("alpha", 1.0))), x, e.like(0))]


@rewrites("Mul", "Div")
def zero_times(node: Node, e: Emit) -> list[str] | None:
    """0 · x and 0 ÷ x with a zero for every column: of one number TVM makes 0, even where x is infinite or NaN.

    x ÷ 0 is x · ∞, the same for every float; TVM refuses to divide by one number that is zero.
    """
    divisor = node.array(1) if node.kind == "Div" else None
    if divisor is not None and divisor.size == 1 and not divisor and divisor.dtype.kind == "f":
        return [e.op("Mul", node.input(0), e.const(np.copysign(divisor.dtype.type(np.inf), divisor)))]
    for index in (0, 1) if node.kind == "Mul" else (0,):
        value, shape = node.array(index), node.known_shape(1 - index) or ()
        if value is not None and value.size == 1 and not value and value.dtype.kind == "f" and shape[-1:] > (1,):
            zeros = e.const(np.full((1,) * (value.ndim - 1) + shape[-1:], value))
            return [e.op(node.kind, *((zeros, node.input(1)) if index == 0 else (node.input(0), zeros)))]
    return None


@converts("Sign")
def sign(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Relax's, which makes 0 of NaN."""
    x = inputs[0]
    signs = bb.normalize(relax.op.sign(x))
    is_float = "float" in dtype_of(x)
    return bb.normalize(relax.op.where(relax.op.isnan(x), x, signs)) if is_float else signs


@rewrites("Softplus")
def softplus(node: Node, e: Emit) -> list[str] | None:
    """max(x, 0) + log1p(z), z = e^−|x|, of which log1p is 2 artanh s, s = z ÷ (z + 2), a polynomial of s² up to 1/9.

    Of doubles log1p(z) = log(u)·z ÷ (u − 1), u = 1 + z, exact to rounding (Kahan).
    """
    x = node.input(0)
    one = e.like(1)
    z = e.op("Exp", e.op("Neg", e.op("Abs", x)))
    if node.type(0) != DOUBLE:
        s = e.op("Div", z, e.op("Add", z, e.like(2)))
        square = e.op("Mul", s, s)
        total = e.like(ARTANH[0])
        for coefficient in ARTANH[1:]:
            total = e.op("Add", e.op("Mul", total, square), e.like(coefficient))
        return [e.op("Add", e.op("Max", x, e.like(0)), e.op("Mul", total, s))]
    u = e.op("Add", z, one)
    small = e.op("Equal", u, one)
    rest = e.op("Where", small, one, e.op("Sub", u, one))
    log1p = e.op("Where", small, z, e.op("Div", e.op("Mul", e.op("Log", u), z), rest))
    return [e.op("Add", e.op("Max", x, e.like(0)), log1p)]


@rewrites("Mish")
def mish(node: Node, e: Emit) -> list[str] | None:
    """x · tanh(softplus x) = x · n ÷ (n + 2), n = e^x · (e^x + 2), which is 1 to rounding from some x on."""
    x, last = node.input(0), MISH_LIMITS.get(node.type(0), 20)
    power = e.op("Exp", e.op("Min", x, e.like(last)))
    n = e.op("Mul", power, e.op("Add", power, e.like(2)))
    return [e.op("Mul", x, e.op("Div", n, e.op("Add", n, e.like(2))))]


@rewrites("Pow")
def power(node: Node, e: Emit) -> list[str] | None:
    """Squares and cubes are products. Of mixed types: the exponent as the base's type; whole numbers as doubles."""
    base, exponent, value = node.type(0), node.type(1), node.array(1)
    if value is not None and value.size == 1 and value.item() in (2, 3) and node.dtype(0).kind in "fiu":
        rank = node.known_shape(0)
        if rank is not None and value.ndim <= len(rank):
            square = e.op("Mul", node.input(0), node.input(0))
            return [square if value.item() == 2 else e.op("Mul", square, node.input(0))]
    if node.dtype(0).kind in "iu":
        whole = e.op("Pow", e.cast(node.input(0), DOUBLE), e.cast(node.input(1), DOUBLE))
        return [e.cast(e.op("Round", whole) if node.dtype(1).kind in "iu" else whole, base)]
    if exponent == base:
        return None
    return [e.op("Pow", node.input(0), e.cast(node.input(1), base))]


@rewrites("IsInf")
def is_infinite(node: Node, e: Emit) -> list[str] | None:
    """Return whether a value is infinite, of one sign or both."""
    x = node.input(0)
    signs = [s for s, name in ((1, "detect_positive"), (-1, "detect_negative")) if node.attr(name, 1)]
    if not signs:
        return [e.op("Expand", e.const(np.array(False)), e.ints(*node.shape(0)))]
    if len(signs) == 2:
        return [e.op("Equal", e.op("Abs", x), e.like(np.inf))]
    return [e.op("Equal", x, e.like(signs[0] * np.inf))]


@rewrites("OneHot")
def one_hot(node: Node, e: Emit) -> list[str] | None:
    """Comparison with 0, 1 … depth − 1 and a choice of the two values."""
    depth = int(node.constant(1, "depth").reshape(-1)[0])
    rank = len(node.shape(0)) + 1
    axis = int(node.attr("axis", -1)) % rank
    indices = e.cast(node.input(0), INT64)
    size = e.const(np.int64(depth))
    indices = e.op("Where", e.op("Less", indices, e.const(np.int64(0))), e.op("Add", indices, size), indices)
    steps = e.reshape(e.const(np.arange(depth, dtype=np.int64)), *(depth if i == axis else 1 for i in range(rank)))
    hit = e.op("Equal", e.unsqueeze(indices, axis), steps)
    off, on = (e.op("Gather", node.input(2), e.const(np.int64(index)), axis=0) for index in (0, 1))
    return [e.op("Where", hit, on, off)]


@rewrites("Compress")
def compress(node: Node, e: Emit) -> list[str] | None:
    """A gather of what a constant condition leaves; one that is computed is for ``dynamic.data_sized``."""
    if node.array(1) is None:
        return None
    chosen = np.flatnonzero(node.constant(1, "condition")).astype(np.int64)
    axis = node.attr("axis")
    if axis is None:
        return [e.op("Gather", e.reshape(node.input(0), -1), e.const(chosen), axis=0)]
    return [e.op("Gather", node.input(0), e.const(chosen), axis=int(axis))]


@rewrites("Dropout")
def dropout(node: Node, e: Emit) -> list[str] | None:
    """Off at inference: everything passes."""
    training = node.array(2)
    ratio = node.array(1)
    if node.input(2) and (training is None or (training.any() and (ratio is None or ratio.any()))):
        raise node.refused("it is in training mode, which is random; export the model for inference")
    kept = e.const(np.ones(node.shape(0), bool)) if node.wants(1) else ""
    return [e.op("Identity", node.input(0)), kept]


@rewrites("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def random(node: Node, e: Emit) -> list[str] | None:
    """Refused in bodies: elsewhere the numbers are an input (``conversion/noise_inputs.py``)."""
    raise node.refused("its results are random")


@rewrites("Mod")
def mod(node: Node, e: Emit) -> list[str] | None:
    """Return the remainder; with ``fmod`` = 0 it has the divisor's sign, as Python's %."""
    if node.dtype(0).kind in "iu" or node.attr("fmod", 0):
        return None
    a, b = node.input(0), node.input(1)
    rest = e.op("Mod", a, b, fmod=1)
    zero = e.like(0)
    wrong = e.op("Xor", e.op("Less", rest, zero), e.op("Less", b, zero))
    moved = e.op("And", wrong, e.op("Not", e.op("Equal", rest, zero)))
    return [e.op("Where", moved, e.op("Add", rest, b), rest)]


@rewrites("Det")
def determinant(node: Node, e: Emit) -> list[str] | None:
    """Leibniz's formula, for small matrices."""
    size = node.shape(0)[-1]
    if size > 4:
        raise node.refused(f"matrices of {size} x {size}; at most 4 x 4 are supported")

    def element(i: int, j: int) -> str:
        row = e.op("Gather", node.input(0), e.const(np.int64(i)), axis=-2)
        return e.op("Gather", row, e.const(np.int64(j)), axis=-1)

    def minor(rows: tuple[int, ...], columns: tuple[int, ...]) -> str:
        if len(rows) == 1:
            return element(rows[0], columns[0])
        total = ""
        for k, column in enumerate(columns):
            term = e.op("Mul", element(rows[0], column), minor(rows[1:], columns[:k] + columns[k + 1 :]))
            total = term if not total else e.op("Sub" if k % 2 else "Add", total, term)
        return total

    return [minor(tuple(range(size)), tuple(range(size)))]


@rewrites("Elu", "Selu", "HardSigmoid", "HardSwish", "LeakyRelu", "Gelu")
def of_doubles(node: Node, e: Emit) -> list[str] | None:
    """In fp64, of which Relax's importer makes fp32 in part: the definition, with attributes that are of fp32."""
    if node.type(0) != DOUBLE:
        return None
    x, zero, one = node.input(0), e.like(0), e.like(1)

    def number(name: str, default: float) -> str:
        return e.const(np.float64(np.float32(node.attr(name, default))))

    if node.kind == "Gelu":
        return [gelu_of(e, x, str(node.attr("approximate", "none")) == "tanh")]
    if node.kind == "LeakyRelu":
        return [e.op("Where", e.op("Less", x, zero), e.op("Mul", x, number("alpha", 0.01)), x)]
    if node.kind in ("HardSigmoid", "HardSwish"):
        swish = node.kind == "HardSwish"
        alpha = e.const(np.float64(np.float32(1 / 6))) if swish else number("alpha", 0.2)
        beta = e.like(0.5) if swish else number("beta", 0.5)
        clipped = e.op("Clip", e.op("Add", e.op("Mul", x, alpha), beta), zero, one)
        return [e.op("Mul", x, clipped) if swish else clipped]
    alpha = number("alpha", 1.0 if node.kind == "Elu" else 1.67326319217681884765625)
    below = e.op("Mul", alpha, e.op("Sub", e.op("Exp", x), one))
    result = e.op("Where", e.op("Less", x, zero), below, x)
    return [e.op("Mul", result, number("gamma", 1.05070102214813232421875)) if node.kind == "Selu" else result]


def gelu_of(e: Emit, x: str, by_tanh: bool) -> str:
    """x/2 · (1 + erf(x/√2)), or with tanh(√(2/π) · (x + 0.044715 x³)) instead of erf."""
    if by_tanh:
        cube = e.op("Mul", e.op("Mul", x, x), x)
        inner = e.op("Add", x, e.op("Mul", cube, e.like(0.044715)))
        part = e.op("Tanh", e.op("Mul", inner, e.like(math.sqrt(2 / math.pi))))
    else:
        part = e.op("Erf", e.op("Div", x, e.like(math.sqrt(2))))
    tail = e.op("Add", part, e.like(1))
    return e.op("Mul", e.op("Mul", x, e.like(0.5)), tail)


@converts("Erf")
def erf(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Return the error function; fp64 uses the C library, because TVM's own is a polynomial for fp32."""
    (x,) = inputs[:1]
    assert x is not None
    if str(x.ty.dtype) != "float64":
        return relax.op.erf(x)

    def compute(data: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *at: tirx.call_pure_extern("float64", "erf", data(*at)), name="erf")

    return bb.emit_te(compute, x, primfunc_name_hint="erf")
