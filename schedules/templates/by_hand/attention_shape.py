"""Sizes of attention over a cache, and what its kernels share: for prompts, and for few new positions."""

# No ``from __future__ import annotations`` here: TVM's script reads the annotations as values.

from dataclasses import dataclass

from tvm import tirx
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from schedules.templates import scripted

LANES = 16
BLOCK = 32
"""Positions whose scores exist at a time."""

ACCUMULATORS = 28
"""Vectors of sums that stay in registers beside operands, of 32."""

LEAST = -3.0e38
"""Score of what is hidden. Finite, so that differences of scores are numbers."""


@dataclass(frozen=True)
class AttentionShape:
    """Sizes of the kernel, and what it hides.

    Attributes:
        heads, groups: of queries, and of keys and values.
        length: new positions.
        size: elements of a head, a multiple of ``LANES``.
        capacity: positions that the cache can hold.
        mask: shape of the mask, each of its first three axes 1 or full: (batch, heads, length, positions). Column j is
            position j of the cache; the new ones begin at column ``new_at``. No positions: a query sees what is before
            it, and itself.
        new_at: −1 for ``starts`` of the row's batch.
        scale: of the scores.
        window: positions that a query sees, its own included; 0 for all. Without a mask only.
        softcap: c of scores c · tanh(score / c); 0 for none.
    """

    batch: int
    heads: int
    groups: int
    length: int
    size: int
    capacity: int
    mask: tuple[int, int, int, int] = (1, 1, 1, 0)
    new_at: int = -1
    scale: float = 1.0
    window: int = 0
    softcap: float = 0.0

    @property
    def rows(self) -> int:
        """Rows of one group."""
        return self.heads // self.groups * self.length

    @property
    def prompt_tile(self) -> int:
        """Rows of a head that ``prompt_attention.py`` computes together; 0 if the new positions do not fill vectors."""
        return next((tile for tile in (2 * LANES, LANES) if self.length % tile == 0), 0)

    @property
    def tile(self) -> int:
        """Rows that are computed together: as many as keep their sums in registers, and divide the rows."""
        if self.prompt_tile:
            return self.prompt_tile
        most = max(1, min(ACCUMULATORS * LANES // self.size, ACCUMULATORS * LANES // BLOCK))
        return next(tile for tile in range(min(most, self.rows), 0, -1) if self.rows % tile == 0)


@scripted.inline
def append(cache, new, which, row, start):  # type: ignore[no-untyped-def]
    """New keys (``which`` 0) or values (1) of one group, of number ``row`` over the batch, from ``start`` on."""
    for i in range(new.shape[3]):
        if start + i < cache.shape[2]:
            for e in T.vectorized(new.shape[4]):
                cache[row // new.shape[2], row % new.shape[2], start + i, e] = new[
                    which, row // new.shape[2], row % new.shape[2], i, e
                ]


def all_of(buffer: tirx.Buffer) -> tirx.BufferRegion:
    """All of a buffer, as a block says what it reads."""
    return buffer[tuple(slice(None) for _ in buffer.shape)]
