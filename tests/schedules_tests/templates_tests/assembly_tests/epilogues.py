"""What follows a product, for the tests of kernels in assembly: each as stages of TVM and as NumPy has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from tests.schedules_tests.programs import Array

Indices = Sequence[tirx.Expr]


def _float(value: float) -> tirx.Expr:
    return tirx.const(value, "float32")


@dataclass(frozen=True)
class Following:
    """What follows a product.

    Attributes:
        of: TVM's expression of a sum, one stage a function.
        by_numpy: the same of arrays.
        operands: "bias" and "residual", as far as they are added before that.
    """

    of: tuple[Callable[[Any], Any], ...]
    by_numpy: Callable[[Array], Array]
    operands: tuple[str, ...] = ("bias",)

    def after(
        self, out: te.Tensor, bias_shape: tuple[int, ...], bias_at: Callable[[Indices], Indices]
    ) -> list[te.Tensor]:
        """The operands' tensors, and the result."""
        shape, tensors = out.shape, []
        for name in self.operands:
            operand = te.placeholder(bias_shape if name == "bias" else shape, name=name)
            tensors.append(operand)
            out = _added(out, operand, bias_at if name == "bias" else tuple)
        for function in self.of:
            out = _applied(out, function)
        return [*tensors, out]

    def expected(self, product: Array, operands: Sequence[Array]) -> Array:
        """By NumPy, the operands in a form that broadcasts."""
        return self.by_numpy(sum((operand.astype(np.float64) for operand in operands), product))


def _added(out: te.Tensor, operand: te.Tensor, at: Callable[[Indices], Indices]) -> te.Tensor:
    return te.compute(out.shape, lambda *i: out(*i) + operand(*at(i)), name="added")


def _applied(out: te.Tensor, function: Callable[[Any], Any]) -> te.Tensor:
    return te.compute(out.shape, lambda *i: function(out(*i)), name="applied")


def _hard_swish(y: Any) -> Any:
    return y * te.max(te.min(y + _float(3), _float(6)), _float(0)) * _float(1 / 6)


def _gelu(y: Any) -> Any:
    return _float(0.5) * y * (_float(1) + te.erf(y * _float(math.sqrt(0.5))))


FACTORS = tuple(0.25 * number - 1.1 for number in range(7))


def _crowded(y: Any) -> Any:
    """Seven numbers that are all read again after the last is known.

    TVM computes a number again wherever it is read: LLVM needs 0.1 s for this, and a minute for a sum read seven times.
    """
    return _weighed([te.max(y * _float(factor), y - _float(1 + factor)) for factor in FACTORS], _float(0.5))


def _crowded_by_numpy(y: Array) -> Array:
    weighed: Array = _weighed([np.maximum(y * factor, y - (1 + factor)) for factor in FACTORS], 0.5)
    return weighed


def _weighed(values: Sequence[Any], half: Any) -> Any:
    """The sum of all, then half of what is known plus the next, from the first on: every number counts."""
    result = sum(values[1:], values[0])
    for value in values:
        result = result * half + value
    return result


_erf = np.vectorize(math.erf)


def _sigmoid(y: Array) -> Array:
    return 1 / (1 + np.exp(-y))


FOLLOWING: dict[str, Following] = {
    "none": Following((), lambda y: y, ()),
    "bias": Following((), lambda y: y),
    "relu": Following((lambda y: te.max(y, _float(0)),), lambda y: np.maximum(y, 0)),
    "residual": Following((lambda y: te.max(y, _float(0)),), lambda y: np.maximum(y, 0), ("bias", "residual")),
    "two residuals": Following((), lambda y: y, ("residual", "bias", "residual")),
    "relu6": Following((lambda y: te.max(y, _float(0)), lambda y: te.min(y, _float(6))), lambda y: np.clip(y, 0, 6)),
    "leaky": Following(
        (lambda y: tirx.Select(y > _float(0), y, y * _float(0.1)),), lambda y: np.where(y > 0, y, 0.1 * y), ()
    ),
    "hard swish": Following((_hard_swish,), lambda y: y * np.clip(y + 3, 0, 6) / 6),
    "sigmoid": Following((te.sigmoid,), _sigmoid),
    "silu": Following((lambda y: y * te.sigmoid(y),), lambda y: y * _sigmoid(y)),
    "gelu": Following((_gelu,), lambda y: y / 2 * (1 + _erf(y * math.sqrt(0.5)))),
    "tanh": Following((te.tanh,), np.tanh, ("bias", "residual")),
    "exp": Following((lambda y: te.exp(y * _float(0.125)),), lambda y: np.exp(y / 8), ()),
    "root": Following((lambda y: te.sqrt(y * y + _float(1)),), lambda y: np.sqrt(y * y + 1), ()),
    "floor": Following((lambda y: te.floor(y) - te.ceil(y * _float(8)),), lambda y: np.floor(y) - np.ceil(y * 8), ()),
    "crowded": Following((_crowded,), _crowded_by_numpy),
}
"""Name → what follows."""

EXACT_STEPS = ("floor",)
"""Those that jump: a sum that rounds otherwise ends elsewhere, so NumPy's sums tell nothing of them."""
