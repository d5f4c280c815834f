"""The order of numbers, best first, as far as it is asked for; and the places of ones among zeros.

A row is kept as keys in blocks of about its square root, with the best key of every block next to them: the best of all
is found among the blocks' best, taken away, and its block looked through again. So n numbers take 2·√n steps each, in
vectors, and nothing is sorted that nobody asks for. The lower half of a key is the index, if the number fits the upper
one: then no two keys are equal, and the best key tells its index.
"""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

import math
from functools import cache
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from autotune.importer.rewriting.registry import OPAQUE_PATTERN, Inputs, converts
from autotune.importer.rewriting.relax_values import dtype_of, kernel_call, sizes_of
from schedules.templates import scripted
from schedules.templates.common.structure import ITERATIONS

RANKS, PLACES = "Ranks", "Places"

ON_STACK = 1 << 16
"""Bytes that a kernel keeps on a thread's stack, half of the 128 KiB that musl gives a thread."""

LANES = 16
"""Keys of 32 bits in the longest vector: blocks are multiples of it."""

ALONE = {"op_pattern": OPAQUE_PATTERN}

PAIRS = 8
"""Pairs of a number and its index, of 32 bits each, in that vector."""


def block_of(count: int) -> int:
    """Keys in a block of a row of ``count``: near the square root."""
    return LANES * max(1, round(math.sqrt(count) / LANES))


def blocks_of(count: int) -> int:
    """Blocks of a row of ``count``."""
    return -(-count // block_of(count))


def scope_of(size: int) -> str:
    """Return where a kernel keeps ``size`` bytes: on its stack, unless they are many."""
    return "local" if size <= ON_STACK else "global"


def key_type(dtype: str) -> str:
    """The integer type whose order is that of ``dtype``."""
    return "int64" if np.dtype(dtype).itemsize > 4 or dtype == "uint32" else "int32"


def key_of(value: Any, dtype: str, largest: bool) -> Any:
    """An integer that is larger the better ``value`` is.

    Equal numbers have equal keys, zeros of both signs too. NaN is better than all or worse than all, by its sign.
    """
    kind = key_type(dtype)
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    if np.dtype(dtype).kind == "f":
        bits = tirx.Select(value == tirx.const(0, dtype), tirx.const(0, kind), tirx.reinterpret(kind, value))
        key = bits ^ ((bits >> tirx.const(8 * np.dtype(kind).itemsize - 1, kind)) & tirx.const(most, kind))
    elif dtype == "uint64":
        key = tirx.reinterpret(kind, value) ^ tirx.const(least, kind)
    else:
        key = tirx.Cast(kind, value)
    return key if largest else tirx.const(-1, kind) - key


def in_rounds(bb: relax.BlockBuilder, x: relax.Expr, axis: int, count: int, largest: bool) -> relax.Expr:
    """The ranks along an axis that is not the last: the best key, then the best below it, and so on, in vectors."""
    sizes, dtype, wide = sizes_of(x), dtype_of(x), "int64"
    shape = [1 if place == axis else size for place, size in enumerate(sizes)]
    low = tirx.const((1 << 32) - 1, wide)
    results: list[relax.Expr] = []

    def best(data: te.Tensor, *above: te.Tensor) -> te.Tensor:
        step = te.reduce_axis((0, sizes[axis]), "r")

        def key(*at: Any) -> Any:
            value = tirx.Cast(wide, key_of(data(*at[:axis], step.var, *at[axis + 1 :]), dtype, largest))
            key = (value << tirx.const(32, wide)) | (low - tirx.Cast(wide, step.var))
            return tirx.Select(key < above[0](*at), key, tirx.min_value(wide)) if above else key

        return te.compute(shape, lambda *at: te.max(key(*at), axis=step), name="best")

    def index(top: te.Tensor) -> te.Tensor:
        return te.compute(shape, lambda *at: low - (top(*at) & low), name="index")

    tops: list[relax.Expr] = []
    for _ in range(count):
        tops.append(bb.emit_te(best, x, *tops[-1:], primfunc_name_hint="best", primfunc_attrs=ALONE))
        results.append(bb.emit_te(index, tops[-1], primfunc_name_hint="index"))
    return bb.normalize(relax.op.concat(results, axis)) if count > 1 else results[0]


@converts(RANKS)
def ranks(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Index of the k-th element of every row, k = 0 … count − 1: equal elements in their order."""
    x = inputs[0]
    if "axis" in attrs:
        return in_rounds(bb, x, int(attrs["axis"]), int(attrs["count"]), bool(attrs["largest"]))
    *outer, size = sizes_of(x)
    rows, count, dtype = math.prod(outer), int(attrs["count"]), dtype_of(x)
    flat = bb.normalize(relax.op.reshape(x, (rows, size)))
    kernel = ranked(rows, size, count, dtype, bool(attrs["largest"]))
    indices = kernel_call(bb, kernel, "ranks", [flat], (rows, count), "int64")
    return bb.normalize(relax.op.reshape(indices, (*outer, count)))


@cache
def ranked(rows: int, size: int, count: int, dtype: str, largest: bool) -> tirx.PrimFunc:
    """The kernel. TVM takes 20 ms to read one, and a detector has one for each of its classes."""
    make = _ranked_pairs if key_type(dtype) == "int32" else _ranked_keys
    return make(rows, size, count, dtype, largest)


def _ranked_pairs(rows: int, size: int, count: int, dtype: str, largest: bool) -> tirx.PrimFunc:
    """The kernel for numbers of up to 32 bits: a key is a number and its index, which counts down.

    Keys are taken away by vectors: a scalar that is written into a vector which is read next stalls the core.
    """
    width = PAIRS * max(1, round(math.sqrt(size) / PAIRS))
    blocks = -(-size // width)
    taken, half = tirx.const(np.iinfo("int64").min, "int64"), tirx.const((1 << 32) - 1, "int64")
    where = scope_of(blocks * width * 8)

    def pair(value: Any, index: Any) -> Any:
        upper = tirx.Cast("int64", key_of(value, dtype, largest)) << tirx.const(32, "int64")
        return upper | (half - tirx.Cast("int64", index))

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        x: T.Buffer((rows, size), dtype),  # type: ignore[valid-type]
        out: T.Buffer((rows, count), "int64"),  # type: ignore[valid-type]
    ):
        # The axis of one element is for schedules that make vectors of the last.
        for r, u in T.grid(rows, 1):
            with T.sblock("row"):
                row, one = T.axis.remap("SS", [r, u])
                T.reads(x[row, 0:size])
                T.writes(out[row, one:count])
                T.sblock_attr({ITERATIONS: rows * size})
                keys = T.alloc_buffer((blocks, width), "int64", scope=where)
                tops = T.alloc_buffer((blocks,), "int64", scope=where)
                best = T.alloc_buffer((2,), "int64", scope="local")
                at = T.alloc_buffer((1,), "int32", scope="local")
                for b in range(blocks):
                    best[0] = taken
                    for i in range(width):
                        keys[b, i] = T.if_then_else(
                            b * width + i < size, pair(x[row, T.min(b * width + i, size - 1)], b * width + i), taken
                        )
                        best[0] = T.max(best[0], keys[b, i])
                    tops[b] = best[0]
                for k in range(count):
                    best[0] = taken
                    for b in range(blocks):
                        best[0] = T.max(best[0], tops[b])
                    out[row, k] = half - (best[0] & half)
                    at[0] = T.Cast("int32", (half - (best[0] & half)) // width) if blocks > 1 else 0
                    best[1] = taken
                    for i in range(width):
                        keys[at[0], i] = T.Select(keys[at[0], i] == best[0], taken, keys[at[0], i])
                        best[1] = T.max(best[1], keys[at[0], i])
                    for b in range(blocks):
                        tops[b] = T.Select(b == at[0], best[1], tops[b])

    return kernel.with_attr("op_pattern", OPAQUE_PATTERN)


def _ranked_keys(rows: int, size: int, count: int, dtype: str, largest: bool) -> tirx.PrimFunc:
    """The kernel for numbers of more than 32 bits, whose keys have no space for an index."""
    kind, width, blocks = key_type(dtype), block_of(size), blocks_of(size)
    taken, beyond = tirx.const(int(np.iinfo(kind).min), kind), np.iinfo("int32").max
    where = scope_of(blocks * width * np.dtype(kind).itemsize)

    def key(value: Any) -> Any:
        return key_of(value, dtype, largest)

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        x: T.Buffer((rows, size), dtype),  # type: ignore[valid-type]
        out: T.Buffer((rows, count), "int64"),  # type: ignore[valid-type]
    ):
        # The axis of one element is for schedules that make vectors of the last.
        for r, u in T.grid(rows, 1):
            with T.sblock("row"):
                row, one = T.axis.remap("SS", [r, u])
                T.reads(x[row, 0:size])
                T.writes(out[row, one:count])
                T.sblock_attr({ITERATIONS: rows * size})
                keys = T.alloc_buffer((blocks * width,), kind, scope=where)
                tops = T.alloc_buffer((blocks,), kind, scope=where)
                top = T.alloc_buffer((1,), kind, scope="local")
                at = T.alloc_buffer((3,), "int32", scope="local")
                at[2] = 0
                for b in range(blocks):
                    top[0] = taken
                    for i in range(width):
                        keys[b * width + i] = T.if_then_else(
                            b * width + i < size, key(x[row, T.min(b * width + i, size - 1)]), taken
                        )
                        top[0] = T.max(top[0], keys[b * width + i])
                    tops[b] = top[0]
                for k in range(count):
                    top[0] = taken
                    for b in range(blocks):
                        top[0] = T.max(top[0], tops[b])
                    at[1] = T.int32(beyond)
                    if top[0] > taken:
                        at[0] = T.int32(beyond)
                        for b in range(blocks):
                            at[0] = T.min(at[0], T.Select(tops[b] == top[0], b, T.int32(beyond)))
                        for i in range(width):
                            at[1] = T.min(at[1], T.Select(keys[at[0] * width + i] == top[0], i, T.int32(beyond)))
                        at[1] = at[0] * width + at[1]
                        keys[at[1]] = taken
                        tops[at[0]] = taken
                        for i in range(width):
                            tops[at[0]] = T.max(tops[at[0]], keys[at[0] * width + i])
                    else:  # what is left are the worst there are, which look like those that were taken
                        for i in range(size):
                            if key(x[row, i]) < taken + 1 and i >= at[2]:  # TVM takes ``== taken`` for never true
                                at[1] = T.min(at[1], i)
                        at[2] = at[1] + 1
                    out[row, k] = T.Cast("int64", at[1])

    return kernel.with_attr("op_pattern", OPAQUE_PATTERN)


@converts(PLACES)
def places(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Return how many of n numbers (n,) int32 are not zero, and their places in order, (1 + n,) int64."""
    (count,) = sizes_of(inputs[0])
    return kernel_call(bb, placed(count), "places", inputs[:1], (1 + count,), "int64")


@cache
def placed(count: int) -> tirx.PrimFunc:
    """The kernel: a place is written where the next one goes, and stays there if it counts."""

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        mask: T.Buffer((count,), "int32"),  # type: ignore[valid-type]
        out: T.Buffer((1 + count,), "int64"),  # type: ignore[valid-type]
    ):
        with T.sblock("places"):
            T.reads(mask[0:count])
            T.writes(out[0 : 1 + count])
            at = T.alloc_buffer((1,), "int64", scope="local")
            at[0] = T.int64(0)
            for i in range(1 + count):
                out[i] = T.int64(0)
            for i in range(count):
                out[T.int64(1) + at[0]] = T.Cast("int64", i)
                at[0] = at[0] + T.Cast("int64", mask[i] != 0)
            out[0] = at[0]

    return kernel.with_attr("op_pattern", OPAQUE_PATTERN)
