"""Attention as one operator, which one kernel computes (``schedules/templates/by_hand/plain_attention.py``).

    matmul(softmax(scale · matmul(q, kᵀ) + mask), v)  →  PlainAttention(q, k, v, mask)

Queries, keys and values are read where they lie, before the exporter's transposes. Rows that no position is shown to
are NaN; exporters that make zeros of them (where(isnan(p), 0, p)) get zeros. A mask may also be a choice between the
scores and a very small number.

On a two-core Zen 5, one thread, without other kernels: 1,500 positions of 8 heads of 64 take 22.3 ms instead of 31.5 in
three kernels, 512 of 12 heads 4.2 instead of 6.3, 197 of 12 0.85 instead of 1.1, 64 of 12 0.095 instead of 0.122.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from autotune.importer.onnx_model.graph_edits import drop_unused
from autotune.importer.onnx_model.graph_walk import attributes_of
from autotune.importer.onnx_model.shapes import OWN_DOMAIN, PLAIN_ATTENTION, know_own_domain
from autotune.importer.rewriting.attention_step import AttentionStep, Scores
from schedules.templates.by_hand.attention_shape import LANES
from schedules.templates.by_hand.plain_attention import HIDDEN, TILE, waste

RANKS = (3, 4)
"""Axes of the operands: heads, rows and elements; behind a batch or not."""

MOST_WASTE = 1.3
"""Most multiply-adds per needed one, by tiles and blocks that are not full. Without a mask, one kernel takes as long as
three at 1.43 (50 positions), and 0.78 of it at 1 (64)."""

LEAST_BY_ROW = 256
"""Positions from which a mask that differs by row, which the kernel turns, is no hindrance: one kernel takes 1.29 times
as long as three at 64, as long at 197, and 0.71 of it at 512."""


def join_attention(model: ModelProto) -> None:
    """Rewrite ``model``, whose shapes are inferred, in place."""
    step = _Joined(model)
    step.run()
    if step.joined:
        know_own_domain(model)
        drop_unused(model.graph)


class _Joined(AttentionStep):
    def __init__(self, model: ModelProto) -> None:
        super().__init__(model, [value.name for value in model.graph.input], {})
        self.joined = 0

    def visit(self, node: NodeProto) -> None:
        """Append ``node``, or attention in the place of weights · values."""
        scores, zero_unseen = self._attention(node)
        masks = None if scores is None else self._masks(scores)
        if scores is None or masks is None:
            self.nodes.append(node)
            return
        self.joined += 1
        rank = len(self.scope.shapes[node.output[0]])
        reader = self.only_reader(node.output[0])
        turns = reader is not None and reader.op_type == "Transpose"
        out_by_head = not turns or list(attributes_of(reader)["perm"]) != _by_row(rank)  # type: ignore[arg-type]
        query, by_head = self._source(scores.query, False)
        keys, keys_by_head = self._source(scores.keys, True)
        values, values_by_head = self._source(str(node.input[1]), False)
        shape = self.scope.shapes[node.output[0]]
        shape = shape if out_by_head else tuple(shape[axis] for axis in _by_row(rank))
        operands = [self._ranked(name) for name in (query, keys, values)]
        wide = (1,) * (4 - rank) + tuple(shape)
        result = self.ops(
            PLAIN_ATTENTION,
            *operands,
            *([self._sum(masks)] if masks else []),
            domain=OWN_DOMAIN,
            scale=scores.scale,
            by_head=[int(flag) for flag in (by_head, keys_by_head, values_by_head, out_by_head)],
            zero_unseen=int(zero_unseen),
        )[0]
        self.declare(result, wide, TensorProto.FLOAT)
        result = result if rank == len(wide) else self.reshape(result, *shape)
        if out_by_head:
            self.called("Identity", [result], node.output[0])
        else:
            self.called("Transpose", [result], node.output[0], perm=_by_row(rank))

    def _attention(self, node: NodeProto) -> tuple[Scores | None, bool]:
        """The scores behind the weights that ``node`` multiplies, and whether NaN among the weights become zeros."""
        weights = self._made(node.input[0], "Softmax", "Where") if node.op_type == "MatMul" else None
        zero_unseen = weights is not None and weights.op_type == "Where"
        if weights is not None and zero_unseen:
            condition = self.makers.get(weights.input[0])
            softmax = self.makers.get(weights.input[2])
            is_nan = condition is not None and condition.op_type == "IsNaN" and condition.input[0] == weights.input[2]
            readers = self.readers(weights.input[2])
            alone = readers is not None and all(reader in (condition, weights) for reader in readers)
            weights = softmax if is_nan and alone and self.number(weights.input[1]) == 0 else None
        if weights is None or weights.op_type != "Softmax" or node.domain or weights.domain:
            return None, False
        rank = len(self.scope.shapes.get(weights.output[0], ()))
        last = attributes_of(weights).get("axis", -1) in (-1, rank - 1)
        scores = self._hidden(weights.input[0]) if last and rank in RANKS else None
        return (scores if scores is not None and self._fits(node, scores) else None), zero_unseen

    def _made(self, name: str, *kinds: str) -> NodeProto | None:
        """The node of one of ``kinds`` that makes ``name``, if one node reads that."""
        node = self.makers.get(name)
        return node if node is not None and node.op_type in kinds and self.only_reader(name) is not None else None

    def _hidden(self, name: str) -> Scores | None:
        """Work like ``scores``, also behind a choice between scores and a very small number."""
        choice = self._made(name, "Where")
        if choice is None:
            return self._alone(name)
        condition, *sides = choice.input
        for at, side in enumerate(sides):
            scores = self._alone(side)
            least = self.number(sides[1 - at])
            if scores is not None and least is not None and least <= HIDDEN:
                zero, low = self.const(np.float32(0)), self.const(np.float32(least))
                mask = self.op("Where", condition, *((zero, low) if at == 0 else (low, zero)))
                self.scope.shapes[mask], self.scope.types[mask] = self.scope.shapes[condition], TensorProto.FLOAT
                scores.masks.append(mask)
                return scores
        return None

    def _alone(self, name: str) -> Scores | None:
        """The scores called ``name``, if nothing else reads them or what they are made of."""
        scores = self.scores(name)
        while scores is not None:
            node = self.makers[name]
            if self.only_reader(name) is None:
                return None
            if node.op_type == "MatMul":
                return scores
            name = next(mine for mine in node.input if self.scores(mine) is not None)
        return None

    def _fits(self, product: NodeProto, scores: Scores) -> bool:
        """Whether a kernel takes these sizes and types."""
        names = scores.query, scores.keys, str(product.input[1])
        shapes = [self.scope.shapes.get(name) for name in names]
        if any(self.scope.types.get(name) != TensorProto.FLOAT for name in (*names, product.output[0])):
            return False
        query, keys, values = shapes
        if query is None or keys is None or values is None or not len(query) == len(keys) == len(values):
            return False
        if len(query) not in RANKS or not query[:-2] == keys[:-2] == values[:-2]:
            return False
        sizes = query[-1], values[-1]
        return (
            query[-2] >= TILE
            and keys[-1] >= LANES
            and all(size and size % LANES == 0 for size in sizes)
            and all(query)
            and waste(query[-2], keys[-1]) <= MOST_WASTE
        )

    def _masks(self, scores: Scores) -> list[str] | None:
        """Return what is added to the scores, with four axes each; None if a kernel cannot add it."""
        *batch, length, _ = self.scope.shapes[scores.query]
        full = (1,) * (2 - len(batch)) + (*batch, length, self.scope.shapes[scores.keys][-1])
        masks = []
        for name in scores.masks:
            shape = self.scope.shapes.get(name)
            if shape is None or self.scope.types.get(name) != TensorProto.FLOAT or len(shape) > len(batch) + 2:
                return None
            extents = (1,) * (4 - len(shape)) + tuple(shape)
            if extents[3] != full[3] or any(size not in (1, most) for size, most in zip(extents, full, strict=True)):
                return None
            if extents[2] > 1 and extents[3] < LEAST_BY_ROW:
                return None
            masks.append(name if len(shape) == 4 else self.reshape(name, *extents))
        return masks

    def _sum(self, masks: Sequence[str]) -> str:
        total, *others = masks
        for name in others:
            total = self.op("Add", total, name)
        return total

    def _source(self, name: str, turned: bool) -> tuple[str, bool]:
        """Find where queries, keys or values lie, and whether heads come before rows there.

        Args:
            turned: whether the last two axes of ``name`` are the other way round.
        """
        root, order = name, list(range(len(self.scope.shapes[name])))
        while (node := self.makers.get(root)) is not None and node.op_type == "Transpose":
            perm = attributes_of(node)["perm"]
            root, order = str(node.input[0]), [perm[axis] for axis in order]
        if turned:
            order[-2:] = order[:-3:-1]
        rank = len(order)
        if order == list(range(rank)):
            return root, True
        if order == _by_row(rank):
            return root, False
        return self.transpose(root, *order), True

    def _ranked(self, name: str) -> str:
        shape = self.scope.shapes.get(name)
        return name if shape is None or len(shape) == 4 else self.reshape(name, 1, *shape)


def _by_row(rank: int) -> list[int]:
    """The order of axes that exchanges heads and rows."""
    return [1, 0, 2] if rank == RANKS[0] else [0, 2, 1, 3]
