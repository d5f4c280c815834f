"""Look for attention: a product of queries and keys, its scale and masks, before a softmax."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.importer.rewriting.step import Step


@dataclass
class Scores:
    """A product of queries and keys as it is before the softmax.

    Attributes:
        query, keys: the operands of the product: (…, length, size) and (…, size, positions).
        scale: of the product.
        masks: names of what is added to it after that.
    """

    query: str
    keys: str
    scale: float
    masks: list[str]


class AttentionStep(Step):
    """A step that looks for attention."""

    def scores(self, name: str) -> Scores | None:
        """Return how ``name`` comes from a product of queries and turned keys."""
        node = self.makers.get(name)
        if node is None:
            return None
        if node.op_type == "MatMul":
            return Scores(node.input[0], node.input[1], 1.0, [])
        if node.op_type == "Add":
            for mine, other in (node.input, list(node.input)[::-1]):
                scores = self.scores(mine)
                if scores is not None:
                    scores.masks.append(other)
                    return scores
        if node.op_type in ("Mul", "Div"):
            for mine, other in (node.input, list(node.input)[::-1])[: 2 if node.op_type == "Mul" else 1]:
                factor = self.number(other)
                scores = self.scores(mine) if factor is not None else None
                if scores is not None and factor and math.isfinite(factor) and not scores.masks:
                    scores.scale *= factor if node.op_type == "Mul" else 1 / factor
                    return scores
        return None

    def number(self, name: str) -> float | None:
        """The constant of one element called ``name``."""
        array = self.scope.array(name)
        return None if array is None or array.size != 1 else float(array.reshape(()))
