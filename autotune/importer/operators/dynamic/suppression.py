"""The greedy choice of boxes: the best box that is left, without those that overlap it, until none is left."""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

from typing import Any

from tvm import relax, tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from autotune.importer.conversion.registry import Inputs, converts

LOWEST = -3.0e38
"""Below every score: where a threshold is left out."""


@converts("Suppress")
def suppress(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Boxes (batch, n, 4), scores (batch, classes, n) → (batch, classes, 1 + kept + n) int64.

    Per class: how many boxes are kept, them, and a flag per box that is 1 while it may still be.
    """
    boxes, scores = inputs[:2]
    assert boxes is not None
    assert scores is not None
    batch, classes, count = (int(size) for size in scores.ty.shape)
    kept = int(attrs["kept"])
    func = greedy(batch, classes, count, kept, float(attrs["overlap"]), max(float(attrs["least"]), LOWEST))
    kernel = bb.add_func(func.without_attr("global_symbol"), "suppress")
    made = relax.TensorType((batch, classes, 1 + kept + count), "int64")
    return bb.emit(relax.op.call_tir(kernel, relax.Tuple([boxes, scores]), made))


def greedy(batch: int, classes: int, count: int, kept: int, overlap: float, least: float) -> tirx.PrimFunc:
    """The kernel, one class after the other.

    Args:
        kept: most boxes of a class.
        overlap: share of the union of two boxes above which the worse is dropped.
        least: score above which a box counts.
    """
    size = 1 + kept + count

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def kernel(  # type: ignore[no-untyped-def]
        boxes: T.Buffer((batch, count, 4), "float32"),  # type: ignore[valid-type]
        scores: T.Buffer((batch, classes, count), "float32"),  # type: ignore[valid-type]
        out: T.Buffer((batch, classes, size), "int64"),  # type: ignore[valid-type]
    ):
        for b in range(batch):
            for c in range(classes):
                with T.sblock("choose"):
                    T.reads(boxes[b, 0:count, 0:4], scores[b, c, 0:count], out[b, c, 0:size])
                    T.writes(out[b, c, 0:size])
                    best = T.alloc_buffer((1,), "int64", scope="local")
                    top = T.alloc_buffer((1,), "float32", scope="local")  # scores[best]: best may be −1
                    edge = T.alloc_buffer((3,), "float32", scope="local")
                    for i in range(1 + kept):
                        out[b, c, i] = T.int64(0)
                    for i in range(count):
                        out[b, c, 1 + kept + i] = T.Cast("int64", scores[b, c, i] > T.float32(least))
                    for k in range(kept):
                        best[0] = T.int64(-1)
                        top[0] = T.float32(0)
                        for i in range(count):
                            if out[b, c, 1 + kept + i] > T.int64(0):  # noqa: SIM102  # as ``or``, ``and`` reads both
                                if best[0] < T.int64(0) or scores[b, c, i] > top[0]:
                                    best[0] = T.Cast("int64", i)
                                    top[0] = scores[b, c, i]
                        if best[0] >= T.int64(0):
                            out[b, c, 1 + k] = best[0]
                            out[b, c, 0] = out[b, c, 0] + T.int64(1)
                            out[b, c, T.int64(1 + kept) + best[0]] = T.int64(0)
                            for i in range(count):
                                edge[0] = T.max(
                                    T.min(boxes[b, i, 2], boxes[b, best[0], 2])
                                    - T.max(boxes[b, i, 0], boxes[b, best[0], 0]),
                                    T.float32(0),
                                )
                                edge[1] = T.max(
                                    T.min(boxes[b, i, 3], boxes[b, best[0], 3])
                                    - T.max(boxes[b, i, 1], boxes[b, best[0], 1]),
                                    T.float32(0),
                                )
                                edge[2] = (boxes[b, i, 2] - boxes[b, i, 0]) * (boxes[b, i, 3] - boxes[b, i, 1])
                                if edge[0] * edge[1] > T.float32(overlap) * (
                                    edge[2]
                                    + (boxes[b, best[0], 2] - boxes[b, best[0], 0])
                                    * (boxes[b, best[0], 3] - boxes[b, best[0], 1])
                                    - edge[0] * edge[1]
                                ):
                                    out[b, c, 1 + kept + i] = T.int64(0)

    return kernel.with_attr("op_pattern", 8)
