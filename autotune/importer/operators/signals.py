"""Fourier transforms as products with constant matrices."""

from __future__ import annotations

import numpy as np

from autotune.importer.conversion.emit import Emit, Node
from autotune.importer.conversion.registry import rewrites

LONGEST = 4096
"""Points of a transform, whose matrix has their square of elements: 64 MiB in fp32. Heuristic, not measured."""


def _waves(points: int, outputs: int, inverse: bool, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Real and imaginary part of e^(∓2πi jk ÷ points), (points, outputs)."""
    angle = 2 * np.pi * np.outer(np.arange(points), np.arange(outputs)) / points
    sign, scale = (1, 1 / points) if inverse else (-1, 1)
    return (np.cos(angle) * scale).astype(dtype), (sign * np.sin(angle) * scale).astype(dtype)


def _transform(node: Node, e: Emit, x: str, shape: tuple[int, ...], points: int, onesided: bool, inverse: bool) -> str:
    """Transform the axis before the last of ``x`` (…, samples, 1 or 2), made ``points`` long, to (…, outputs, 2)."""
    if points > LONGEST:
        raise node.refused(f"{points} points; at most {LONGEST} are supported")
    samples, parts = shape[-2:]
    if samples > points:
        x = e.slice(x, len(shape) - 2, 0, points)
    outputs = points // 2 + 1 if onesided and not inverse else points
    dtype = node.dtype(0)
    if onesided and inverse:
        return _inverse_onesided(e, x, shape, points, dtype)
    rows = min(samples, points)
    cosine, sine = (wave[:rows] for wave in _waves(points, outputs, inverse, dtype))
    real = e.squeeze(e.slice(x, len(shape) - 1, 0, 1), len(shape) - 1)
    re, im = e.op("MatMul", real, e.const(cosine)), e.op("MatMul", real, e.const(sine))
    if parts == 2:
        imaginary = e.squeeze(e.slice(x, len(shape) - 1, 1, 2), len(shape) - 1)
        re = e.op("Sub", re, e.op("MatMul", imaginary, e.const(sine)))
        im = e.op("Add", im, e.op("MatMul", imaginary, e.const(cosine)))
    last = len(shape) - 1
    return e.concat([e.unsqueeze(re, last), e.unsqueeze(im, last)], last)


def _inverse_onesided(e: Emit, x: str, shape: tuple[int, ...], points: int, dtype: np.dtype) -> str:
    """Real signal of ``points`` samples from the first half of its spectrum."""
    rows = min(shape[-2], points // 2 + 1)
    angle = 2 * np.pi * np.outer(np.arange(rows), np.arange(points)) / points
    weight = np.full((rows, 1), 2.0)
    weight[0] = 1
    if points % 2 == 0 and rows == points // 2 + 1:
        weight[-1] = 1
    last = len(shape) - 1
    real, imaginary = (e.squeeze(e.slice(x, last, k, k + 1), last) for k in (0, 1))
    a = e.op("MatMul", real, e.const((weight * np.cos(angle) / points).astype(dtype)))
    b = e.op("MatMul", imaginary, e.const((-weight * np.sin(angle) / points).astype(dtype)))
    return e.unsqueeze(e.op("Add", a, b), last)


@rewrites("DFT")
def dft(node: Node, e: Emit) -> list[str] | None:
    """A matrix product along the transformed axis."""
    shape = node.shape(0)
    rank = len(shape)
    axis = node.attr("axis", 1) if e.opset < 20 else -2
    if node.input(2):
        axis = int(node.constant(2, "axis").reshape(-1)[0])
    axis = int(axis) % rank
    onesided, inverse = bool(node.attr("onesided", 0)), bool(node.attr("inverse", 0))
    if node.input(1):
        points = int(node.constant(1, "length").reshape(-1)[0])
    else:
        points = 2 * (shape[axis] - 1) if onesided and inverse else shape[axis]
    order = [*(i for i in range(rank) if i not in (axis, rank - 1)), axis, rank - 1]
    x = e.transpose(node.input(0), *order)
    y = _transform(node, e, x, tuple(shape[i] for i in order), points, onesided, inverse)
    return [e.transpose(y, *(order.index(i) for i in range(rank)))]


@rewrites("STFT")
def stft(node: Node, e: Emit) -> list[str] | None:
    """Frames gathered, windowed and transformed."""
    shape = node.shape(0)
    step = int(node.constant(1, "frame step").reshape(-1)[0])
    window = node.known_shape(2) if node.input(2) else None
    length = int(node.constant(3, "frame length").reshape(-1)[0]) if node.input(3) else window[0] if window else 0
    frames = (shape[1] - length) // step + 1
    picks = (np.arange(frames)[:, None] * step + np.arange(length)[None, :]).astype(np.int64)
    parts = shape[2] if len(shape) == 3 else 1
    signal = node.input(0) if len(shape) == 3 else e.unsqueeze(node.input(0), 2)
    x = e.op("Gather", signal, e.const(picks), axis=1)
    if window:
        x = e.op("Mul", x, e.reshape(node.input(2), 1, 1, length, 1))
    onesided = bool(node.attr("onesided", 1))
    return [_transform(node, e, x, (shape[0], frames, length, parts), length, onesided, False)]
