"""Resize: along one axis after the other, each output a weighted sum of few inputs at constant places.

The weights are those of ONNX's reference (``onnx.reference.ops.op_resize``), computed for all outputs at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.importer.conversion.emit import Emit, Node
from autotune.importer.conversion.registry import rewrites

Array = NDArray[Any]

FEW_TAPS = 4
"""Inputs per output up to which they are gathered; above, a product with a matrix that is mostly zeros. Heuristic, not
measured."""


@dataclass(frozen=True)
class _Axis:
    """One resized axis: its size before and after, their exact ratio, and its region of interest."""

    index: int
    size: int
    out: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def exact(self) -> float:
        """The size after, before it was made whole."""
        return self.scale * self.size


@rewrites("Resize", "Upsample")
def resize(node: Node, e: Emit) -> list[str] | None:
    """Gathers (nearest) or weighted sums (linear, cubic) along every axis that changes."""
    mode = str(node.attr("mode", "nearest"))
    x = node.input(0)
    axes = _axes(node, e.opset)
    where = _coordinates_mode(node, e.opset)
    outside: list[tuple[int, Array]] = []
    for axis in axes:
        if axis.out == axis.size and axis.scale == 1.0 and where != "tf_crop_and_resize":
            continue
        places = _places(axis, where)
        if where == "tf_crop_and_resize":
            outside.append((axis.index, (places < 0) | (places > axis.size - 1)))
        x = _along(node, e, x, axis, places, mode)
    rank = len(node.shape(0))
    for index, mask in outside:
        if mask.any():
            shaped = mask.reshape([-1 if i == index else 1 for i in range(rank)])
            x = e.op("Where", e.const(shaped), e.like(node.attr("extrapolation_value", 0.0)), x)
    return [x if x != node.input(0) else e.op("Identity", x)]


def _coordinates_mode(node: Node, opset: int) -> str:
    old = node.kind == "Upsample" or opset < 11
    return str(node.attr("coordinate_transformation_mode", "asymmetric" if old else "half_pixel"))


def _axes(node: Node, opset: int) -> list[_Axis]:
    shape = node.shape(0)
    chosen = [int(axis) % len(shape) for axis in node.attr("axes", range(len(shape)))]
    old = node.kind == "Upsample" or opset < 11
    scales = node.constant(1 if old else 2, "scales") if node.input(1 if old else 2) else np.zeros(0)
    roi = np.zeros(0) if old or not node.input(1) else node.constant(1, "region of interest")
    sizes = None if scales.size else node.constant(3, "sizes")
    found = []
    policy = str(node.attr("keep_aspect_ratio_policy", "stretch"))
    if sizes is not None:
        ratios = [float(size) / shape[axis] for size, axis in zip(sizes, chosen, strict=True)]
        if policy != "stretch":
            one = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [one] * len(ratios)
            sizes = np.array([math.floor(one * shape[axis] + 0.5) for axis in chosen])
    else:
        ratios = [float(scale) for scale in scales]
        sizes = np.array([math.floor(scale * shape[axis]) for scale, axis in zip(ratios, chosen, strict=True)])
    for position, (axis, ratio, size) in enumerate(zip(chosen, ratios, sizes, strict=True)):
        ends = (float(roi[position]), float(roi[position + len(chosen)])) if roi.size else (0.0, 1.0)
        found.append(_Axis(axis, shape[axis], int(size), ratio, *ends))
    return found


def _places(axis: _Axis, where: str) -> Array:
    """(out,) where every output lies among the inputs."""
    x = np.arange(axis.out, dtype=np.float64)
    last = axis.size - 1
    if where == "align_corners":
        return np.zeros(axis.out) if axis.exact == 1 else x * last / (axis.exact - 1)
    if where == "asymmetric":
        return x / axis.scale
    if where == "tf_crop_and_resize":
        span = axis.end - axis.start
        inner = np.full(axis.out, span * last / 2) if axis.exact == 1 else x * span * last / (axis.exact - 1)
        return inner + axis.start * last
    if where == "pytorch_half_pixel" and axis.exact == 1:
        return np.full(axis.out, -0.5)
    centre = (x + 0.5) / axis.scale - 0.5
    if where == "half_pixel_symmetric":
        return centre + axis.size / 2 * (1 - axis.out / axis.exact)
    return centre


def _along(node: Node, e: Emit, x: str, axis: _Axis, places: Array, mode: str) -> str:
    """``x`` resized along ``axis``."""
    ratio = places - np.floor(places)
    ratio[ratio == 0] = 1.0  # a place on an input counts as the right end of the interval before it
    if mode == "nearest":
        picks = _nearest(places, ratio, str(node.attr("nearest_mode", "round_prefer_floor")))
        if node.kind == "Upsample" or e.opset < 11:
            picks = np.floor(places)
        return e.op("Gather", x, e.const(np.clip(picks, 0, axis.size - 1).astype(np.int64)), axis=axis.index)
    weights = _weights(node, ratio, axis.scale, mode)
    taps = weights.shape[1]
    picks = (np.ceil(places) - taps // 2).astype(np.int64)[:, None] + np.arange(taps)
    if node.attr("exclude_outside", 0):
        weights = np.where((picks < 0) | (picks >= axis.size), 0.0, weights)
        weights /= weights.sum(axis=1, keepdims=True)
    picks = np.clip(picks, 0, axis.size - 1)
    rank, dtype = len(node.shape(0)), node.dtype(0)
    if taps > FEW_TAPS:
        matrix = np.zeros((axis.size, axis.out))
        np.add.at(matrix, (picks, np.arange(axis.out)[:, None]), weights)
        order = [*(i for i in range(rank) if i != axis.index), axis.index]
        product = e.op("MatMul", e.transpose(x, *order), e.const(matrix.astype(dtype)))
        return e.transpose(product, *(order.index(i) for i in range(rank)))
    total = ""
    for tap in range(taps):
        factor = weights[:, tap].astype(dtype).reshape([-1 if i == axis.index else 1 for i in range(rank)])
        part = e.op("Mul", e.op("Gather", x, e.const(picks[:, tap]), axis=axis.index), e.const(factor))
        total = e.op("Add", total, part) if total else part
    return total


def _nearest(places: Array, ratio: Array, mode: str) -> Array:
    low = np.ceil(places) - 1
    right = {
        "round_prefer_floor": ratio > 0.5,
        "round_prefer_ceil": ratio >= 0.5,
        "floor": ratio == 1.0,
        "ceil": ratio > 0.0,
    }[mode]
    return np.where(right, low + 1, low)


def _weights(node: Node, ratio: Array, scale: float, mode: str) -> Array:
    """(out, taps) weights of the neighbours, left to right."""
    cubic = mode == "cubic"
    a = float(node.attr("cubic_coeff_a", -0.75))
    reach = 2 if cubic else 1
    shrink = min(scale, 1.0) if node.attr("antialias", 0) else 1.0
    start = math.floor(-reach / shrink) + 1
    steps = np.arange(start, 2 - start if cubic else start + 2 - 2 * start)
    distance = np.abs((steps[None, :] - ratio[:, None]) * shrink)
    if cubic:
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
    else:
        weights = np.clip(1 - distance, 0, 1)
    return weights / weights.sum(axis=1, keepdims=True) if node.attr("antialias", 0) else weights
