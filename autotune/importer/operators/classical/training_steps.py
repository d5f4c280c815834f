"""One step of an optimiser of weights, as ONNX's preview domain for training defines it: plain arithmetic.

Every operator takes the learning rate R, the number T of the step, and then, each for all tensors in order, the weights
X, their gradients G, and the states that it keeps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.importer.conversion.emit import Emit, Node
from autotune.importer.conversion.registry import rewrites

TRAINING = "ai.onnx.preview.training"


class _Step:
    """Arithmetic of one node, whose attributes are numbers by name."""

    def __init__(self, node: Node, e: Emit, states: int) -> None:
        self.node, self.e = node, e
        self.rate, self.time = node.input(0), e.cast(node.input(1), node.type(2))
        count = (len(node.proto.input) - 2) // (2 + states)
        names = list(map(str, node.proto.input[2:]))
        self.groups = [tuple(names[group * count + index] for group in range(2 + states)) for index in range(count)]

    def number(self, value: float) -> str:
        """A constant of the type of the weights."""
        return self.e.const(np.array(value).astype(self.node.dtype(2)))

    def attribute(self, name: str, default: float = 0.0) -> float:
        return float(self.node.attr(name, default))

    def add(self, a: str, b: str) -> str:
        return self.e.op("Add", a, b)

    def sub(self, a: str, b: str) -> str:
        return self.e.op("Sub", a, b)

    def times(self, a: str, b: str | float) -> str:
        return self.e.op("Mul", a, self.number(b) if isinstance(b, float) else b)

    def over_root(self, a: str, b: str) -> str:
        """A ÷ (√b + epsilon)."""
        root = self.add(self.e.op("Sqrt", b), self.number(self.attribute("epsilon")))
        return self.e.op("Div", a, root)

    def gradient(self, x: str, g: str) -> str:
        """The gradient with the one of the weights' squares."""
        return self.add(self.times(x, self.attribute("norm_coefficient")), g)

    def later(self, yes: str, no: str) -> str:
        """``yes`` at every step but the first."""
        return self.e.op("Where", self.e.op("Greater", self.time, self.number(0)), yes, no)

    def ordered(self, made: Sequence[Sequence[str]]) -> list[str]:
        """Results of every tensor → the node's outputs."""
        return [name for group in zip(*made, strict=True) for name in group]


@rewrites("Adagrad", domain=TRAINING)
def adagrad(node: Node, e: Emit) -> list[str] | None:
    """H + g², and X − r·g ÷ (√H + ε) with r = R ÷ (1 + T · decay)."""
    step = _Step(node, e, 1)
    slowed = step.add(step.times(step.time, step.attribute("decay_factor")), step.number(1))
    rate, made = e.op("Div", step.rate, slowed), []
    for x, g, h in step.groups:
        own = step.gradient(x, g)
        squares = step.add(h, step.times(own, own))
        made.append((step.sub(x, step.times(rate, step.over_root(own, squares))), squares))
    return step.ordered(made)


@rewrites("Adam", domain=TRAINING)
def adam(node: Node, e: Emit) -> list[str] | None:
    """Means V of g and H of g², and X − r·V ÷ (√H + ε) with r corrected for the first steps."""
    step = _Step(node, e, 2)
    alpha, beta = step.attribute("alpha", 0.9), step.attribute("beta", 0.999)
    one = step.number(1)
    rests = [step.sub(one, e.op("Pow", step.number(value), step.time)) for value in (alpha, beta)]
    corrected = e.op("Div", step.times(step.rate, e.op("Sqrt", rests[1])), rests[0])
    rate, made = step.later(corrected, step.rate), []
    for x, g, v, h in step.groups:
        own = step.gradient(x, g)
        means = step.add(step.times(v, alpha), step.times(own, 1 - alpha))
        squares = step.add(step.times(h, beta), step.times(step.times(own, own), 1 - beta))
        new = step.sub(x, step.times(rate, step.over_root(means, squares)))
        made.append((step.times(new, 1 - step.attribute("norm_coefficient_post")), means, squares))
    return step.ordered(made)


@rewrites("Momentum", domain=TRAINING)
def momentum(node: Node, e: Emit) -> list[str] | None:
    """V = alpha·V + beta·g, and X − R·V, or X − R·(g + alpha·V) after Nesterov."""
    step = _Step(node, e, 1)
    alpha, beta = step.attribute("alpha"), step.later(step.number(step.attribute("beta")), step.number(1))
    made = []
    for x, g, v in step.groups:
        own = step.gradient(x, g)
        moved = step.add(step.times(v, alpha), step.times(own, beta))
        ahead = step.add(own, step.times(moved, alpha)) if str(node.attr("mode")) == "nesterov" else moved
        made.append((step.sub(x, step.times(step.rate, ahead)), moved))
    return step.ordered(made)
