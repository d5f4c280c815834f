"""Fourier transforms as products with constant matrices."""

from __future__ import annotations

import numpy as np

from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import rewrites

LONGEST = 4096
"""Points of a transform that is one product, whose matrix has their square of elements: 64 MiB in fp32. A longer one
is made of shorter ones. Heuristic, not measured."""

Parts = tuple[str, str]
"""Real and imaginary part; the second is "" where it is zero."""


def _waves(points: int, outputs: int, inverse: bool, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Real and imaginary part of e^(∓2πi jk ÷ points), (points, outputs)."""
    angle = 2 * np.pi * np.outer(np.arange(points), np.arange(outputs)) / points
    sign, scale = (1, 1 / points) if inverse else (-1, 1)
    return (np.cos(angle) * scale).astype(dtype), (sign * np.sin(angle) * scale).astype(dtype)


def _transform(node: Node, e: Emit, x: str, shape: tuple[int, ...], points: int, onesided: bool, inverse: bool) -> str:
    """Transform the axis before the last of ``x`` (…, samples, 1 or 2), made ``points`` long, to (…, outputs, 2)."""
    if points > LONGEST:
        return _long_transform(node, e, x, shape, points, onesided, inverse)
    samples, parts = shape[-2:]
    if samples > points:
        x = e.slice(x, len(shape) - 2, 0, points)
    outputs = points // 2 + 1 if onesided and not inverse else points
    dtype = node.dtype(0)
    if onesided and inverse:
        return _inverse_onesided(e, x, shape, points, dtype)
    rows = min(samples, points)
    cosine, sine = (wave[:rows] for wave in _waves(points, outputs, inverse, dtype))
    last = len(shape) - 1
    halves = [e.squeeze(e.slice(x, last, k, k + 1), last) for k in range(parts)]
    re, im = _product(e, (halves[0], halves[1] if parts == 2 else ""), cosine, sine, -1, dtype)
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


def _long_transform(
    node: Node, e: Emit, x: str, shape: tuple[int, ...], points: int, onesided: bool, inverse: bool
) -> str:
    """Work like ``_transform``, by transforms of the factors of ``points``."""
    last, dtype = len(shape) - 1, node.dtype(0)
    halves = [e.squeeze(e.slice(x, last, k, k + 1), last) for k in range(shape[-1])]
    re, im, lead = halves[0], halves[1] if len(halves) == 2 else "", list(shape[:-2])
    if onesided and inverse:  # the rest of the spectrum is the first half's, mirrored
        rows = min(shape[-2], points // 2 + 1)
        place = np.arange(points)
        mirrored = place > points // 2
        picks = np.where(mirrored, points - place, place)
        known = (picks < rows).astype(dtype)
        re, im = (e.op("Gather", part, e.const(np.minimum(picks, rows - 1)), axis=last - 1) for part in (re, im))
        re = e.op("Mul", re, e.const(known))
        im = e.op("Mul", im, e.const(np.where(mirrored, -known, known)))
    else:
        re, im = (_of_length(e, part, shape[-2], points, last - 1) if part else "" for part in (re, im))
    re, im = _factored((e, lead, dtype), (re, im), points, 1 if inverse else -1)
    if inverse:
        re, im = (e.op("Mul", part, e.like(1 / points)) for part in (re, im))
        if onesided:
            return e.unsqueeze(re, last)
    elif onesided:
        re, im = (e.slice(part, last - 1, 0, points // 2 + 1) for part in (re, im))
    return e.concat([e.unsqueeze(re, last), e.unsqueeze(im, last)], last)


def _of_length(e: Emit, x: str, samples: int, points: int, axis: int) -> str:
    """``x`` cut, or padded with zeros, along its last ``axis``."""
    if samples >= points:
        return x if samples == points else e.slice(x, axis, 0, points)
    return e.op("Pad", x, e.ints(*[0] * (2 * axis + 1), points - samples))


Place = tuple[Emit, list[int], np.dtype]
"""The writer of a transform, the axes before it, and its type."""


def _factored(at: Place, x: Parts, points: int, sign: int) -> Parts:
    """Σ_n x[…, n] · e^(sign · 2πi · kn / points) for every k, by the factors a · b of ``points`` (Cooley and Tukey).

    With n = b · p + q and k = r + a · s: transforms over p of every q, turned by e^(sign · 2πi · qr / points), and over
    q of every r. A length with a large prime factor is a convolution (``_chirped``).
    """
    e, lead, dtype = at
    if points <= LONGEST:
        return _product(e, x, *_waves(points, points, False, np.dtype(np.float64)), sign, dtype)
    a = next((n for n in range(int(points**0.5), 1, -1) if points % n == 0), 1)
    b, rank = points // a, len(lead)
    if a == 1 or (b > LONGEST and _largest_prime(b) > LONGEST):
        return _chirped(at, x, points, sign)

    def turned(part: str, rows: int, columns: int) -> str:
        return e.transpose(e.reshape(part, *lead, rows, columns), *range(rank), rank + 1, rank) if part else ""

    inner = _factored((e, [*lead, b], dtype), (turned(x[0], a, b), turned(x[1], a, b)), a, sign)
    angle = sign * 2 * np.pi * (np.outer(np.arange(b), np.arange(a)) % points) / points
    re, im = _times(e, inner, np.cos(angle).astype(dtype), np.sin(angle).astype(dtype))
    re, im = _factored((e, [*lead, a], dtype), (turned(re, b, a), turned(im, b, a)), b, sign)
    return e.reshape(turned(re, a, b), *lead, points), e.reshape(turned(im, a, b), *lead, points)


def _product(e: Emit, x: Parts, cosine: np.ndarray, sine: np.ndarray, sign: int, dtype: np.dtype) -> Parts:
    """``x`` times the matrix of waves, of which ``sine`` is that of a forward transform."""
    c, s = e.const(cosine.astype(dtype)), e.const((-sign * sine).astype(dtype))
    re, im = e.op("MatMul", x[0], c), e.op("MatMul", x[0], s)
    if not x[1]:
        return re, im
    return e.op("Sub", re, e.op("MatMul", x[1], s)), e.op("Add", im, e.op("MatMul", x[1], c))


def _times(e: Emit, x: Parts, cosine: np.ndarray, sine: np.ndarray) -> Parts:
    """``x`` times constants, element by element."""
    c, s = e.const(cosine), e.const(sine)
    if not x[1]:
        return e.op("Mul", x[0], c), e.op("Mul", x[0], s)
    re = e.op("Sub", e.op("Mul", x[0], c), e.op("Mul", x[1], s))
    return re, e.op("Add", e.op("Mul", x[0], s), e.op("Mul", x[1], c))


def _chirped(at: Place, x: Parts, points: int, sign: int) -> Parts:
    """A transform of any length as a convolution with a chirp, by transforms of a power of two (Bluestein, 1970)."""
    e, lead, dtype = at
    longer = 1 << (2 * points - 2).bit_length()
    n = np.arange(points)
    chirp = np.exp(sign * 1j * np.pi * (n * n % (2 * points)) / points)
    around = np.zeros(longer, np.complex128)
    around[:points], around[longer - n[1:]] = chirp.conj(), chirp.conj()[1:]
    response = np.fft.fft(around)
    axis = len(lead)
    re, im = _times(e, x, chirp.real.astype(dtype), chirp.imag.astype(dtype))
    padded = tuple(_of_length(e, part, points, longer, axis) for part in (re, im))
    spectrum = _factored(at, (padded[0], padded[1]), longer, -1)
    product = _times(e, spectrum, response.real.astype(dtype), response.imag.astype(dtype))
    back = _factored(at, product, longer, 1)
    re, im = (e.slice(part, axis, 0, points) for part in back)
    scaled = chirp / longer
    return _times(e, (re, im), scaled.real.astype(dtype), scaled.imag.astype(dtype))


def _largest_prime(number: int) -> int:
    """The largest prime factor."""
    largest, factor = 1, 2
    while factor * factor <= number:
        while number % factor == 0:
            largest, number = factor, number // factor
        factor += 1
    return max(largest, number)


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
