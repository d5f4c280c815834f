"""Weights of 4 and 8 bits: as models store them, and packed as kernels read them.

A model's order is a matrix in memory, its last axis packed, the lower half byte first:

    "nk"   (N, K)   MatMulNBits, and DequantizeLinear along axis 1, of which a transpose is multiplied
    "kn"   (K, N)   DequantizeLinear along axis 0

Kernels (``low_bit_matmul``) read unsigned levels in panels of b columns: weights (N/b, K/Q, b, 4) bytes, byte q of a
lane number q of its Q, and in the upper half number 4 + q; scales (N/b, K/G, b); zero points alike, of 4 bits those of
two groups in a byte. Columns beyond N have a scale of 0, and depth beyond K meets activations of 0.
"""

from __future__ import annotations

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
            made = unpacked(self.levels.reshape(-1)[first * row : last * row].reshape(-1, row), self.bits)
        elif self.bits == 8:
            made = self.levels.reshape(self.depth, self.columns)[:, first:last].T
        else:
            made = unpacked(self.levels.reshape(self.depth, -1)[:, first // 2 : -(-last // 2)], 4).T
        return made ^ np.uint8(1 << (self.bits - 1)) if self.signed else made

    def numbers(self) -> NDArray[np.float32]:
        """The matrix itself, (K, N)."""
        half = 1 << (self.bits - 1)
        zero = np.float32(half) if self.zero is None else self.zero[:, :, None].astype(np.float32)
        grouped = self.rows_of(0, self.columns).reshape(self.columns, self.groups, self.group).astype(np.float32)
        made = (grouped - zero) * self.scale[:, :, None]
        return made.reshape(self.columns, self.depth).T


def unpacked(data: Array, bits: int) -> Array:
    """(…, n) bytes → (…, n · 8/bits) numbers, those in the lowest bits first."""
    if bits == 8:
        return data
    return np.stack([data & 15, data >> 4], -1).reshape(*data.shape[:-1], -1)


def pack_levels(weight: LowBits, lanes: int) -> Array:
    """(N/b, K/Q, b, 4) with b = ``lanes``."""
    per_lane = 32 // weight.bits
    panels, steps = -(-weight.columns // lanes), weight.depth // per_lane
    out = np.zeros((panels, steps, lanes, 4), np.uint8)
    at_once = max(1, CHUNK_BYTES * 8 // (lanes * weight.depth * weight.bits))
    for panel in range(0, panels, at_once):
        first, last = panel * lanes, min((panel + at_once) * lanes, weight.columns)
        rows = weight.rows_of(first, last)
        missing = -len(rows) % lanes
        rows = np.pad(rows, ((0, missing), (0, 0))) if missing else rows
        split = rows.reshape(-1, lanes, steps, per_lane // 4, 4)
        made = split[..., 0, :] if weight.bits == 8 else split[..., 0, :] | split[..., 1, :] << 4
        out[panel : panel + at_once] = made.transpose(0, 2, 1, 3)
    return out


def pack_groups(values: Array, lanes: int) -> Array:
    """(N, K/G) → (N/b, K/G, b), zeros beyond N."""
    values = np.pad(values, ((0, -len(values) % lanes), (0, 0)))
    return np.ascontiguousarray(values.reshape(-1, lanes, values.shape[1]).transpose(0, 2, 1))


def pack_zeros(weight: LowBits, lanes: int) -> Array | None:
    """(N/b, K/G, b), of 4 bits (N/b, K/2G, b); None where they are half of the range."""
    half = 1 << (weight.bits - 1)
    if weight.zero is None or bool((weight.zero == half).all()):
        return None
    zero = weight.zero
    if weight.bits == 4:
        zero = np.pad(zero, ((0, 0), (0, zero.shape[1] % 2)))
        zero = zero[:, ::2] | zero[:, 1::2] << 4
    return pack_groups(zero.astype(np.uint8), lanes)
