"""Attention as one operator, which one kernel computes (``schedules/templates/by_hand/plain_attention.py``).

    matmul(softmax(scale · matmul(q, kᵀ) + mask), v)  →  PlainAttention(q, k, v, mask)

Queries, keys and values are read where they lie, before the exporter's transposes. Rows that no position is shown to
are NaN; exporters that make zeros of them (where(isnan(p), 0, p)) get zeros. A mask may also be a choice between the
scores and a very small number.

On a two-core Zen 5, one thread, attention alone: 1,500 positions of 8 heads of 64 take 24.0 ms instead of 31.7 in three
kernels, 512 of 12 heads 4.7 instead of 6.1, 197 of 12 0.80 instead of 0.89, 64 of 12 0.093 instead of 0.095.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from autotune.importer.onnx_model.graph_walk import attributes_of
from autotune.importer.onnx_model.shapes import OWN_DOMAIN, PLAIN_ATTENTION, STANDARD_DOMAINS, know_domain
from autotune.importer.rewriting.step import AttentionStep, Scores
from schedules.templates.by_hand.attention_shape import LANES
from schedules.templates.by_hand.plain_attention import HIDDEN, LARGEST_SIZE, TILE, waste

RANKS = (3, 4)
"""Axes of the operands: heads, rows and elements; behind a batch or not."""

LAST_BY_DEFAULT = 13
"""First opset whose softmax is along the last axis where none is named."""

MOST_WASTE = 1.3
"""Most multiply-adds per needed one, by tiles and blocks that are not full. Without a mask, one kernel takes as long as
three at 1.43 (50 positions), and 0.90 of it at 1.15 (197)."""

BY_ELEMENT = frozenset({"Add", "And", "Cast", "Div", "Mul", "Not", "Or", "Sub", "Where"})
"""Operators that masks are made with, of whose result a row needs one row of each input."""

LEAST_BY_ROW = 256
"""Positions from which a mask that differs by row, which the kernel turns, is no hindrance: one kernel takes 1.02 times
as long as three at 64, 1.03 times at 197, and 0.73 of it at 512."""


def join_attention(model: ModelProto) -> None:
    """Rewrite ``model``, whose shapes are inferred, in place."""
    step = _Joined(model)
    step.run()
    if step.joined:
        know_domain(model)


@dataclass(frozen=True)
class _Attention:
    """Scores, and what becomes of them.

    Attributes:
        choice: the condition of a choice between scores and ``least``, its inputs in order; none if empty.
        zero_unseen: whether weights that are NaN become zeros.
    """

    scores: Scores
    choice: tuple[str, ...] = ()
    least: float = 0.0
    zero_unseen: bool = False


class _Joined(AttentionStep):
    def __init__(self, model: ModelProto) -> None:
        super().__init__(model)
        self.joined = 0
        self._last_by_default = all(
            entry.version >= LAST_BY_DEFAULT for entry in model.opset_import if entry.domain in STANDARD_DOMAINS
        )
        self._made_masks: dict[object, str] = {}

    def replaced(self, node: NodeProto) -> bool:
        """Append attention in the place of weights · values."""
        attention = self._attention(node)
        attention = None if attention is None else self._one_row(attention)
        extents = None if attention is None else self._extents(attention)
        if attention is None or extents is None:
            return False
        self.joined += 1
        shape = self.scope.shapes[node.output[0]]
        rank = len(shape)
        reader = self.only_reader(node.output[0])
        out_by_head = reader is None or reader.op_type != "Transpose" or self._order(reader) != _by_row(rank)
        scores = attention.scores
        operands = [
            self._source(name, turned)
            for name, turned in ((scores.query, False), (scores.keys, True), (str(node.input[1]), False))
        ]
        shape = shape if out_by_head else tuple(shape[axis] for axis in _by_row(rank))
        wide = (1,) * (4 - rank) + tuple(shape)
        mask = self._mask(attention, extents)
        result = self.ops(
            PLAIN_ATTENTION,
            *(name for name, _ in operands),
            *([mask] if mask else []),
            domain=OWN_DOMAIN,
            scale=scores.scale,
            by_head=[int(flag) for flag in (*(by_head for _, by_head in operands), out_by_head)],
            chosen=int(bool(attention.choice)),
            zero_unseen=int(attention.zero_unseen),
        )[0]
        self.declare(result, wide, TensorProto.FLOAT)
        result = result if rank == len(wide) else self.reshape(result, *shape)
        if out_by_head:
            self.called("Identity", [result], node.output[0])
        else:
            self.called("Transpose", [result], node.output[0], perm=_by_row(rank))
        return True

    def _attention(self, node: NodeProto) -> _Attention | None:
        """Look behind the weights that ``node`` multiplies; None if no kernel takes what is there."""
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
            return None
        rank = len(self.scope.shapes.get(weights.output[0], ()))
        axis = attributes_of(weights).get("axis", -1 if self._last_by_default else 1)
        if rank not in RANKS or axis not in (-1, rank - 1):
            return None
        attention = self._chosen(str(weights.input[0]))
        fits = attention is not None and self._fits(node, attention.scores)
        return replace(attention, zero_unseen=zero_unseen) if attention is not None and fits else None

    def _made(self, name: str, *kinds: str) -> NodeProto | None:
        """The node of one of ``kinds`` that makes ``name``, if one node reads that."""
        node = self.makers.get(name)
        return node if node is not None and node.op_type in kinds and self.only_reader(name) is not None else None

    def _chosen(self, name: str) -> _Attention | None:
        """Look for scores, also behind a choice between them and a very small number.

        A choice drops NaN, and a mask within it would be added to what the choice puts there.
        """
        choice = self._made(name, "Where")
        if choice is None:
            scores = self._alone(name)
            return None if scores is None else _Attention(scores)
        for side, other in (choice.input[1:], list(choice.input)[:0:-1]):
            scores, least = self._alone(side), self.number(other)
            if scores is not None and least is not None and least <= HIDDEN and not scores.masks:
                return _Attention(scores, tuple(choice.input), least)
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
        return (
            query[-2] >= TILE
            and keys[-1] >= LANES
            and all(0 < size <= LARGEST_SIZE and size % LANES == 0 for size in (query[-1], values[-1]))
            and all(query)
            and waste(query[-2], keys[-1]) <= MOST_WASTE
        )

    def _extents(self, attention: _Attention) -> list[tuple[int, ...]] | None:
        """Return the shapes of what is added to the scores, with four axes each; None if a kernel cannot add it."""
        scores = attention.scores
        *batch, length, _ = self.scope.shapes[scores.query]
        full = (1,) * (2 - len(batch)) + (*batch, length, self.scope.shapes[scores.keys][-1])
        shapes = [self.scope.shapes.get(name) for name in scores.masks or attention.choice[:1]]
        if any(self.scope.types.get(name) != TensorProto.FLOAT for name in scores.masks):
            return None
        extents_of_masks = []
        for shape in shapes:
            if shape is None or len(shape) > len(batch) + 2:
                return None
            extents = (1,) * (4 - len(shape)) + tuple(shape)
            if extents[3] != full[3] or any(size not in (1, most) for size, most in zip(extents, full, strict=True)):
                return None
            if extents[2] > 1 and extents[3] < LEAST_BY_ROW:
                return None
            extents_of_masks.append(extents)
        return extents_of_masks

    def _one_row(self, attention: _Attention) -> _Attention:
        """``attention`` with masks of one row where all rows of a mask are equal, as of padding that was expanded."""
        masks = [self._row_of(name) or name for name in attention.scores.masks]
        choice = attention.choice
        if choice:
            choice = (self._row_of(choice[0]) or choice[0], *choice[1:])
        return replace(attention, scores=replace(attention.scores, masks=masks), choice=choice)

    @cached_property
    def _row_of(self) -> Callable[[str], str]:
        """Emits one row of what has equal rows, axis 2 of 4, once; empty where rows may differ.

        What has one row, or fewer axes than rows and elements, is that row itself.
        """
        return cache(self._made_row)

    def _made_row(self, name: str) -> str:
        shape, array, node = self.scope.shapes.get(name), self.array(name), self.makers.get(name)
        if shape is None or (len(shape) > 1 and shape[-2] != 1 and array is None and node is None):
            return ""
        if len(shape) < 2 or shape[-2] == 1:
            return name
        if array is not None:
            same = np.array_equal(np.broadcast_to(array[..., :1, :], array.shape), array)
            return self.const(array[..., :1, :]) if same else ""
        assert node is not None
        if node.domain or node.op_type not in (*BY_ELEMENT, "Expand"):
            return ""
        inputs = [*node.input[:1]] if node.op_type == "Expand" else [*node.input]
        rows = [self._row_of(str(one)) for one in inputs]
        if not all(rows):
            return ""
        wanted = (*shape[:-2], 1, shape[-1])
        if node.op_type == "Expand":
            row = rows[0] if self.scope.shapes[rows[0]] == wanted else self.op("Expand", rows[0], self.ints(*wanted))
        else:
            row = self.op(node.op_type, *rows, **attributes_of(node))
        self.declare(row, wanted, self.scope.types[name])
        return row

    def _mask(self, attention: _Attention, extents: Sequence[tuple[int, ...]]) -> str:
        """Emit what is added to the scores, once for all layers that share it; empty if nothing is."""
        names, least = attention.scores.masks, attention.least
        if attention.choice:
            condition, yes, _ = attention.choice
            number = self.const(np.float32(least)), self.const(np.float32(0))
            sides = number if self.number(yes) == least else number[::-1]
            key: object = condition, sides == number, least
            names = [self._made_masks.get(key) or self.op("Where", condition, *sides)]
            self._made_masks[key] = names[0]
        total = ""
        for name, shape in zip(names, extents, strict=True):
            key = total, name
            if key not in self._made_masks:
                wide = name if self.scope.shapes.get(name) == shape else self.reshape(name, *shape)
                self._made_masks[key] = self.op("Add", total, wide) if total else wide
            total = self._made_masks[key]
        return total

    def _order(self, transpose: NodeProto) -> list[int]:
        """The permutation of a Transpose; without one, axes are reversed."""
        rank = len(self.scope.shapes[transpose.output[0]])
        return [int(axis) for axis in attributes_of(transpose).get("perm", reversed(range(rank)))]

    def _source(self, name: str, turned: bool) -> tuple[str, bool]:
        """Find where queries, keys or values lie, with four axes, and whether heads come before rows there.

        Args:
            turned: whether the last two axes of ``name`` are the other way round.
        """
        shape = self.scope.shapes[name]
        root, order = name, list(range(len(shape)))
        while (node := self.makers.get(root)) is not None and node.op_type == "Transpose":
            perm = self._order(node)
            root, order = str(node.input[0]), [perm[axis] for axis in order]
        if turned:
            order[-2:] = order[:-3:-1]
            shape = (*shape[:-2], shape[-1], shape[-2])
        by_head = order != _by_row(len(order))
        if not by_head:
            shape = tuple(shape[axis] for axis in order)
        elif order != list(range(len(order))):
            root = self.transpose(root, *order)
        return (root if len(shape) == 4 else self.reshape(root, 1, *shape)), by_head


def _by_row(rank: int) -> list[int]:
    """The order of axes that exchanges heads and rows."""
    return [1, 0, 2] if rank == RANKS[0] else [0, 2, 1, 3]
