"""Weights of 4 and 8 bits: as models store them, and packed as kernels read them.

A model's order is a matrix in memory, its last axis packed, the lower half byte first:

    "nk"   (N, K)   MatMulNBits, and DequantizeLinear along axis 1, of which a transpose is multiplied
    "kn"   (K, N)   DequantizeLinear along axis 0

Kernels (``low_bit_matmul``) read unsigned levels in panels of b columns: weights (N/b, K/Q, b, 4) bytes, byte q of a
lane number q of its Q, and in the upper half number 4 + q; scales (N/b, K/G, b); zero points alike, of 4 bits those of
two groups in a byte. Columns beyond N have a scale of 0, and depth beyond K meets activations of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

CHUNK_BYTES = 4 << 20
"""Bytes of weights that are packed at once: what is between the two orders takes a few times as much."""


@dataclass(frozen=True)
class LowBits:
    """A constant matrix of K × N numbers (level - zero point) · scale, in groups of G along K.

    Attributes:
        bits: 4 or 8.
        group: G.
        depth, columns: K, a multiple of G here, and N.
        order: "nk" or "kn".
        levels: bytes as the model has them.
        scale: (N, K/G), float32.
        zero: (N, K/G), uint8; None for half of the range.
        signed: whether the levels are two's complement, their zero points already unsigned.
    """

    bits: int
    group: int
    depth: int
    columns: int
    order: str
    levels: Array
    scale: Array
    zero: Array | None
    signed: bool = False

    @property
    def groups(self) -> int:
        """Groups of a column."""
        return self.depth // self.group

    def rows_of(self, first: int, last: int) -> Array:
        """Unsigned levels of the columns ``first`` to ``last``, (columns, K), uint8."""
        if self.order == "nk":
            row = self.depth * self.bits // 8
            rows = unpacked(self.levels.reshape(-1)[first * row : last * row].reshape(-1, row), self.bits)
        elif self.bits == 8:
            rows = self.levels.reshape(self.depth, self.columns)[:, first:last].T
        else:
            rows = unpacked(self.levels.reshape(self.depth, -1)[:, first // 2 : -(-last // 2)], 4).T
        return rows ^ np.uint8(1 << (self.bits - 1)) if self.signed else rows

    def words_of(self, first: int, last: int) -> Array:
        """Unsigned levels of the columns ``first`` to ``last``, (columns, K/Q) of uint32, Q numbers each."""
        if self.order == "nk":
            row = self.depth * self.bits // 8
            words: Array = self.levels.reshape(-1)[first * row : last * row].view("<u4").reshape(-1, row // 4)
            words = words ^ np.uint32(0x88888888 if self.bits == 4 else 0x80808080) if self.signed else words
        else:
            rows = self.rows_of(first, last)
            words = np.ascontiguousarray(rows[:, ::2] | rows[:, 1::2] << 4 if self.bits == 4 else rows).view("<u4")
        return words if self.bits == 8 else _spread(words & 0xFFFF) | _spread(words >> 16) << 4

    def numbers(self) -> NDArray[np.float32]:
        """The matrix itself, (K, N)."""
        half = 1 << (self.bits - 1)
        zero = np.float32(half) if self.zero is None else self.zero[:, :, None].astype(np.float32)
        grouped = self.rows_of(0, self.columns).reshape(self.columns, self.groups, self.group).astype(np.float32)
        scaled = (grouped - zero) * self.scale[:, :, None]
        return scaled.reshape(self.columns, self.depth).T


def _spread(words: Array) -> Array:
    """The four lowest half bytes of every word as the lower halves of its bytes."""
    words = (words | words << 8) & 0x00FF00FF
    spread: Array = (words | words << 4) & 0x0F0F0F0F
    return spread


def unpacked(data: Array, bits: int) -> Array:
    """(…, n) bytes → (…, n · 8/bits) numbers, those in the lowest bits first."""
    if bits == 8:
        return data
    return np.stack([data & 15, data >> 4], -1).reshape(*data.shape[:-1], -1)


def pack_levels(weight: LowBits, lanes: int) -> Array:
    """(N/b, K/Q, b, 4) with b = ``lanes``."""
    panels, steps = -(-weight.columns // lanes), weight.depth * weight.bits // 32
    out = np.zeros((panels, steps, lanes), "<u4")
    at_once = max(1, CHUNK_BYTES * 8 // (lanes * weight.depth * weight.bits))
    for panel in range(0, panels, at_once):
        first, last = panel * lanes, min((panel + at_once) * lanes, weight.columns)
        words = weight.words_of(first, last)
        missing = -len(words) % lanes
        words = np.pad(words, ((0, missing), (0, 0))) if missing else words
        out[panel : panel + at_once] = words.reshape(-1, lanes, steps).transpose(0, 2, 1)
    return out.view(np.uint8).reshape(panels, steps, lanes, 4)


def pack_groups(values: Array, lanes: int) -> Array:
    """(N, K/G) → (N/b, K/G, b), zeros beyond N."""
    values = np.pad(values, ((0, -len(values) % lanes), (0, 0)))
    return np.ascontiguousarray(values.reshape(-1, lanes, values.shape[1]).transpose(0, 2, 1))


def pack_zeros(weights: Sequence[LowBits], lanes: int) -> Array | None:
    """(N/b, K/G, b), of 4 bits (N/b, K/2G, b), of ``weights`` side by side; None where all are half of the range."""
    first, half = weights[0], 1 << (weights[0].bits - 1)
    if all(weight.zero is None or bool((weight.zero == half).all()) for weight in weights):
        return None
    halves = np.full((1, first.groups), half, np.uint8)
    zero = np.concatenate([np.repeat(halves, w.columns, 0) if w.zero is None else w.zero for w in weights])
    if first.bits == 4:
        zero = np.pad(zero, ((0, 0), (0, zero.shape[1] % 2)))
        zero = zero[:, ::2] | zero[:, 1::2] << 4
    return pack_groups(zero.astype(np.uint8), lanes)
