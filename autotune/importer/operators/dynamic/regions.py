"""RoiAlign: of every region, bins of means or maxima of samples between the pixels."""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

import math
from dataclasses import dataclass
from typing import Any

from onnx import TensorProto
from tvm import relax, tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from autotune.importer.onnx_model.shapes import OWN_DOMAIN
from autotune.importer.rewriting.emit import INT64, Emit, Node
from autotune.importer.rewriting.registry import OPAQUE_PATTERN, Inputs, converts, rewrites
from autotune.importer.rewriting.relax_values import kernel_call, sizes_of
from schedules.templates import scripted
from schedules.templates.common.structure import ITERATIONS

REGIONS = "Regions"

MOST_LANES = 16
"""Channels in the longest vector of fp32."""


@dataclass(frozen=True)
class Sampling:
    """The places of samples, and the function of them.

    Attributes:
        ratio: samples of a bin along an axis; 0 for one per pixel of it.
        scale: size of the maps over that of what the corners are given in.
        half: whether pixels have their place in their middle.
        largest: whether the greatest weighted corner of a bin's samples counts, not their mean.
    """

    ratio: int
    scale: float
    half: bool
    largest: bool


@rewrites("RoiAlign")
def roi_align(node: Node, e: Emit) -> list[str]:
    """All of the regions."""
    return [regions_of(node, e, e.ints(node.shape(1)[0]))]


def regions_of(node: Node, e: Emit, count: str) -> str:
    """``Regions``, which is ours, of the inputs of a ``RoiAlign``: the first ``count`` (1,) regions, then zeros."""
    size = int(node.attr("output_height", 1)), int(node.attr("output_width", 1))
    default = "half_pixel" if node.scope.opset >= 16 else "output_half_pixel"
    half = node.attr("coordinate_transformation_mode", default) == "half_pixel"
    wide = node.type(0) in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    x, regions = (e.cast(node.input(index), TensorProto.FLOAT) if wide else node.input(index) for index in range(2))
    result = e.op(
        REGIONS,
        *(x, regions, e.cast(node.input(2), INT64), count),
        domain=OWN_DOMAIN,
        size=list(size),
        ratio=int(node.attr("sampling_ratio", 0)),
        scale=float(node.attr("spatial_scale", 1.0)),
        half=int(half),
        largest=int(node.attr("mode", "avg") == "max"),
    )
    shape = (node.shape(1)[0], node.shape(0)[1], *size)
    e.declare(result, shape, TensorProto.FLOAT if wide else node.type(0))
    return e.cast(result, node.type(0)) if wide else result


@converts(REGIONS)
def regions(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """Maps (n, channels, h, w), corners (r, 4), their maps (r,), how many count (1,) → (r, channels, *size)."""
    x, corners, batch, count = (value for value in inputs if value is not None)
    maps, channels, height, width = sizes_of(x)
    rows, size, dtype = sizes_of(corners)[0], tuple(int(extent) for extent in attrs["size"]), str(x.ty.dtype)
    last = bb.normalize(relax.op.permute_dims(x, (0, 2, 3, 1)))
    sampling = Sampling(int(attrs["ratio"]), float(attrs["scale"]), bool(attrs["half"]), bool(attrs["largest"]))
    kernel = sampled((maps, height, width, channels), rows, dtype, size, sampling)
    return kernel_call(bb, kernel, "roi_align", [last, corners, batch, count], (rows, channels, *size), dtype)


class _Bins:
    """Arithmetic of the kernel, on expressions.

    Args:
        maps: (n, h, w, channels).
        size: bins of a region, down and across.
    """

    def __init__(self, maps: tuple[int, int, int, int], size: tuple[int, ...], dtype: str, sampling: Sampling) -> None:
        self._limits, self._size, self._dtype, self._sampling = maps[1:3], size, dtype, sampling

    def real(self, value: Any) -> Any:
        """A number of the maps' type."""
        return tirx.Cast(self._dtype, value) if isinstance(value, tirx.Expr) else tirx.const(value, self._dtype)

    def first(self, corner: Any) -> Any:
        """Return where a region begins on the map."""
        return corner * self.real(self._sampling.scale) - self.real(0.5 if self._sampling.half else 0.0)

    def extent(self, one: Any, other: Any) -> Any:
        """Return how long a region is on the map."""
        long = self.first(other) - self.first(one)
        return long if self._sampling.half else tirx.max(long, self.real(1.0))

    def samples(self, long: Any, axis: int) -> Any:
        """Samples of a bin along an axis."""
        if self._sampling.ratio > 0:
            return tirx.const(self._sampling.ratio, "int32")
        return tirx.Cast("int32", tirx.max(tirx.ceil(long / self.real(self._size[axis])), self.real(0.0)))

    def place(self, corner: Any, long: Any, bin_number: Any, sample: Any, count: Any, axis: int) -> Any:
        """Return where sample ``sample`` of ``count`` of a bin lies on the map."""
        within = (self.real(sample) + self.real(0.5)) / self.real(count)
        return self.first(corner) + (self.real(bin_number) + within) * (long / self.real(self._size[axis]))

    def weight(self, place: Any, axis: int, behind: Any) -> Any:
        """Return the weight of the pixel before a position, or after it."""
        held = tirx.max(place, self.real(0.0))
        low = tirx.Cast("int32", held)
        share = tirx.Select(low >= self._limits[axis] - 1, self.real(0.0), held - self.real(low))
        inside = tirx.all(place >= self.real(-1.0), place <= self.real(self._limits[axis]))
        return tirx.Select(inside, tirx.Select(behind > 0, share, self.real(1.0) - share), self.real(0.0))

    def pixel(self, place: Any, axis: int, behind: Any) -> Any:
        """The pixel before a place, or behind it, on the map."""
        held = tirx.max(tirx.min(place, self.real(self._limits[axis])), self.real(0.0))
        number = tirx.min(tirx.Cast("int32", held) + behind, tirx.const(self._limits[axis] - 1, "int32"))
        return tirx.max(number, tirx.const(0, "int32"))  # of NaN, the integer is the least there is

    def nothing(self) -> Any:
        """Return the value of a bin before its samples."""
        return self.real(float("-inf") if self._sampling.largest else 0.0)

    def joined(self, one: Any, other: Any) -> Any:
        """Two of a bin's weighted pixels."""
        return tirx.max(one, other) if self._sampling.largest else one + other

    def whole(self, value: Any, taken: Any) -> Any:
        """A bin of ``taken`` samples."""
        if self._sampling.largest:
            return tirx.Select(taken > 0, value, self.real(0.0))
        return value / self.real(tirx.max(taken, tirx.const(1, "int32")))


def sampled(
    maps: tuple[int, int, int, int], rows: int, dtype: str, size: tuple[int, ...], sampling: Sampling
) -> tirx.PrimFunc:
    """The kernel, in vectors of channels: a sample is a weighted sum of four pixels, all channels of one side by side.

    Args:
        maps: (n, h, w, channels).
        rows: regions.
        size: bins of a region, down and across.
    """
    (count, height, width, channels), (down, across) = maps, size
    lanes, bins = math.gcd(channels, MOST_LANES), _Bins(maps, size, dtype, sampling)

    @scripted.prim_func(s_tir=True)
    def kernel(  # type: ignore[no-untyped-def]
        x: T.Buffer((count, height, width, channels), dtype),  # type: ignore[valid-type]
        corners: T.Buffer((rows, 4), dtype),  # type: ignore[valid-type]
        batch: T.Buffer((rows,), "int64"),  # type: ignore[valid-type]
        number: T.Buffer((1,), "int64"),  # type: ignore[valid-type]
        out: T.Buffer((rows, channels, down, across), dtype),  # type: ignore[valid-type]
    ):
        # The axis of one element is for schedules that make vectors of the last.
        for r, u in T.grid(rows, 1):
            with T.sblock("region"):
                row, one = T.axis.remap("SS", [r, u])
                T.reads(x[0:count, 0:height, 0:width, 0:channels], corners[row, 0:4], batch[row], number[0])
                T.writes(out[row, one:channels, 0:down, 0:across])
                T.sblock_attr({ITERATIONS: rows * channels * down * across})
                long = T.alloc_buffer((2,), dtype, scope="local")
                at = T.alloc_buffer((2,), dtype, scope="local")
                taken = T.alloc_buffer((2,), "int32", scope="local")
                place = T.alloc_buffer((3,), "int32", scope="local")
                share = T.alloc_buffer((1,), dtype, scope="local")
                total = T.alloc_buffer((channels,), dtype, scope="local")
                if T.Cast("int64", row) < number[0]:
                    place[0] = T.Cast("int32", T.max(T.min(batch[row], T.int64(count - 1)), T.int64(0)))
                    long[0] = bins.extent(corners[row, 1], corners[row, 3])
                    long[1] = bins.extent(corners[row, 0], corners[row, 2])
                    taken[0] = bins.samples(long[0], 0)
                    taken[1] = bins.samples(long[1], 1)
                    for i, j in T.grid(down, across):
                        for c in range(channels):
                            total[c] = bins.nothing()
                        for sy in range(taken[0]):
                            for sx in range(taken[1]):
                                at[0] = bins.place(corners[row, 1], long[0], i, sy, taken[0], 0)
                                at[1] = bins.place(corners[row, 0], long[1], j, sx, taken[1], 1)
                                for below, right in T.grid(2, 2):
                                    place[1] = bins.pixel(at[0], 0, below)
                                    place[2] = bins.pixel(at[1], 1, right)
                                    share[0] = bins.weight(at[0], 0, below) * bins.weight(at[1], 1, right)
                                    for c in range(channels // lanes):
                                        for v in T.vectorized(lanes):
                                            total[c * lanes + v] = bins.joined(
                                                total[c * lanes + v],
                                                share[0] * x[place[0], place[1], place[2], c * lanes + v],
                                            )
                        for c in range(channels):
                            out[row, c, i, j] = bins.whole(total[c], taken[0] * taken[1])
                else:
                    for c, i, j in T.grid(channels, down, across):
                        out[row, c, i, j] = bins.real(0.0)

    return kernel.with_attr("op_pattern", OPAQUE_PATTERN)
