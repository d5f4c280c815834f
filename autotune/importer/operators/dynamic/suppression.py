"""The greedy choice of boxes: the best box that is left, unless one that was chosen overlaps it, until none is left.

Boxes are taken in the order of their scores, each compared with those chosen so far, in vectors; boxes that come behind
the last one asked for are never looked at.
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from autotune.importer.operators.dynamic.ordering import block_of, blocks_of, key_of
from autotune.importer.rewriting.registry import OPAQUE_PATTERN, Inputs, converts
from autotune.importer.rewriting.relax_values import kernel_call, sizes_of
from schedules.templates import scripted

LOWEST = -3.0e38
"""Below every score: where a threshold is left out."""

CORNERS_AND_AREA = 5
TAKEN = int(np.iinfo("int32").min)


@converts("Suppress")
def suppress(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Boxes (batch, n, 4), scores (batch, classes, n), limits (3,) → (batch, classes, 1 + kept) int64.

    Per class: how many boxes are kept, and them.
    """
    (batch, classes, count), kept = sizes_of(inputs[1]), int(attrs["kept"])
    kernel = greedy(batch, classes, count, kept)
    return kernel_call(bb, kernel, "suppress", inputs[:3], (batch, classes, 1 + kept), "int64")


def score_key(score: Any, least: Any) -> Any:
    """The key of a box: that of one that was taken where its score is not above ``least``."""
    counts = score > least
    return tirx.if_then_else(counts, key_of(score, "float32", largest=True), tirx.const(TAKEN, "int32"))


def overlapping(one: Any, other: Any, j: Any, most: Any) -> Any:
    """1 where ``one`` and box ``j`` of ``other`` share more than ``most`` of what they cover together, else 0."""
    sides = (tirx.min(one[i + 2], other[i + 2, j]) - tirx.max(one[i], other[i, j]) for i in (0, 1))
    height, width = (tirx.max(side, tirx.const(0, "float32")) for side in sides)
    together = one[4] + other[4, j] - height * width
    return tirx.Cast("int32", height * width > most * together)


def greedy(batch: int, classes: int, count: int, kept: int) -> tirx.PrimFunc:
    """The kernel, one class after the other. Keys and the best of each block are those of ``ordering``.

    Its limits are the share of the union of two boxes above which the worse is dropped, the score above which a box
    counts, and the most boxes of a class.

    Args:
        kept: most boxes of a class that there is room for.
    """
    width, blocks = block_of(count), blocks_of(count)
    taken, beyond = TAKEN, np.iinfo("int32").max

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        boxes: T.Buffer((batch, count, 4), "float32"),  # type: ignore[valid-type]
        scores: T.Buffer((batch, classes, count), "float32"),  # type: ignore[valid-type]
        limits: T.Buffer((3,), "float32"),  # type: ignore[valid-type]
        out: T.Buffer((batch, classes, 1 + kept), "int64"),  # type: ignore[valid-type]
    ):
        for b, c in T.grid(batch, classes):
            with T.sblock("choose"):
                T.reads(boxes[b, 0:count, 0:4], scores[b, c, 0:count], limits[0:3])
                T.writes(out[b, c, 0 : 1 + kept])
                keys = T.alloc_buffer((blocks * width,), "int32")
                tops = T.alloc_buffer((blocks,), "int32")
                chosen = T.alloc_buffer((CORNERS_AND_AREA, kept), "float32")
                top = T.alloc_buffer((1,), "int32", scope="local")
                at = T.alloc_buffer((2,), "int32", scope="local")
                number = T.alloc_buffer((1,), "int32", scope="local")
                hit = T.alloc_buffer((1,), "int32", scope="local")
                box = T.alloc_buffer((CORNERS_AND_AREA,), "float32", scope="local")
                for i in range(1 + kept):
                    out[b, c, i] = T.int64(0)
                for block in range(blocks):
                    top[0] = T.int32(taken)
                    for i in range(width):
                        keys[block * width + i] = T.if_then_else(
                            block * width + i < count,
                            score_key(scores[b, c, block * width + i], limits[1]),
                            T.int32(taken),
                        )
                        top[0] = T.max(top[0], keys[block * width + i])
                    tops[block] = top[0]
                number[0] = 0
                top[0] = T.int32(beyond)
                while top[0] > T.int32(taken) and number[0] < T.min(T.Cast("int32", limits[2]), kept):
                    top[0] = T.int32(taken)
                    for block in range(blocks):
                        top[0] = T.max(top[0], tops[block])
                    if top[0] > T.int32(taken):
                        at[0] = T.int32(beyond)
                        for block in range(blocks):
                            at[0] = T.min(at[0], T.Select(tops[block] == top[0], block, T.int32(beyond)))
                        at[1] = T.int32(beyond)
                        for i in range(width):
                            at[1] = T.min(at[1], T.Select(keys[at[0] * width + i] == top[0], i, T.int32(beyond)))
                        at[1] = at[0] * width + at[1]
                        keys[at[1]] = T.int32(taken)
                        tops[at[0]] = T.int32(taken)
                        for i in range(width):
                            tops[at[0]] = T.max(tops[at[0]], keys[at[0] * width + i])
                        for i in range(4):
                            box[i] = boxes[b, at[1], i]
                        box[4] = (box[2] - box[0]) * (box[3] - box[1])
                        hit[0] = 0
                        for j in range(number[0]):
                            hit[0] = T.max(hit[0], overlapping(box, chosen, j, limits[0]))
                        if hit[0] == 0:
                            for i in range(CORNERS_AND_AREA):
                                chosen[i, number[0]] = box[i]
                            out[b, c, 1 + number[0]] = T.Cast("int64", at[1])
                            number[0] = number[0] + 1
                out[b, c, 0] = T.Cast("int64", number[0])

    return kernel.with_attr("op_pattern", OPAQUE_PATTERN)
