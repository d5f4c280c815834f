"""The transform of a Winograd tile, matrix · tile · matrixᵀ, (``common/winograd_transforms.py``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schedules.templates.assembly.assembly_text import AssemblyText
from schedules.templates.assembly.vectors import AVX512, Vectors
from schedules.templates.common.winograd_transforms import Matrix

TOTALS = (6, 7)
"""Registers of sums, in turn; those before them hold numbers that a tile is made of."""
FACTORS = 4
"""Registers for the matrix's numbers other than one: the last ones."""


def kept(vectors: Vectors) -> range:
    """Registers for what lies between both sides of a transform; the rest of it lies on the stack."""
    return range(TOTALS[-1] + 1, vectors.count - FACTORS)


class StraightTransform:
    """Writes tiles of one transform.

    Args:
        scratch: bytes from rsp to room for what does not fit the registers, ``scratch_bytes`` of them.
    """

    def __init__(self, code: AssemblyText, matrix: Matrix, scratch: int) -> None:
        self._code, self._matrix, self._scratch = code, matrix, scratch
        factors = sorted({abs(value) for row in matrix for value in row} - {0, 1})
        self._kept = kept(code.vectors)
        self._factors = dict(zip(factors, range(code.vectors.count - FACTORS, code.vectors.count), strict=False))

    @staticmethod
    def scratch_bytes(matrix: Matrix, vectors: Vectors = AVX512) -> int:
        """Bytes that a tile needs on the stack."""
        return max(0, len(matrix) * len(matrix[0]) - len(kept(vectors))) * vectors.size

    @property
    def spare(self) -> range:
        """Registers that nothing uses."""
        count = self._code.vectors.count
        return range(count - FACTORS + len(self._factors), count)

    def begin(self) -> None:
        """Load the factors; once before any number of tiles."""
        for value, register in self._factors.items():
            memory = self._code.constant(value).removesuffix("{1to16}")
            self._code.emit(f"vbroadcastss v{register}, {memory}")

    def tile(self, source: Callable[[int, int], str], store: Callable[[int, int, int], None]) -> None:
        """One tile.

        Args:
            source: the memory operand of number x, y.
            store: writes number x, y of the result, from the register that is given.
        """
        code, inputs = self._code, len(self._matrix[0])
        for y in range(inputs):
            code.emit(*(f"vmovups v{x}, {source(x, y)}" for x in range(inputs)))
            for x, row in enumerate(self._matrix):
                total = self._sum(row, [f"v{number}" for number in range(inputs)], TOTALS[0])
                place = self._between(x, y)
                code.emit(f"vmovaps {place}, {total}")
        for x in range(len(self._matrix)):
            for y, row in enumerate(self._matrix):
                total = self._sum(row, [self._between(x, number) for number in range(inputs)], TOTALS[y % 2])
                if not total.startswith("v"):
                    code.emit(f"vmovaps v{TOTALS[y % 2]}, {total}")
                    total = f"v{TOTALS[y % 2]}"
                store(x, y, int(total.removeprefix("v")))

    def _between(self, x: int, y: int) -> str:
        at = x * len(self._matrix[0]) + y
        if at < len(self._kept):
            return f"v{self._kept[at]}"
        return f"[rsp+{self._scratch + (at - len(self._kept)) * self._code.vectors.size}]"

    def _sum(self, row: Sequence[float], numbers: Sequence[str], register: int) -> str:
        """Σ factor · number: in ``register``, or where the only number is."""
        terms = [(value, number) for value, number in zip(row, numbers, strict=True) if value]
        # What is multiplied comes first: its product is a register of the sum's own. Then what is added as it is.
        terms.sort(key=lambda term: (term[0] < 0, abs(term[0]) == 1))
        (value, total), *rest = terms
        assert value > 0, "a row of a transform has a positive number"
        target = f"v{register}"
        if value != 1:
            self._code.emit(f"vmulps {target}, v{self._factors[value]}, {total}")
            total = target
        elif rest and not total.startswith("v"):
            self._code.emit(f"vmovaps {target}, {total}")
            total = target
        if total != target:  # a sum of its own before anything is multiplied onto it
            rest.sort(key=lambda term: abs(term[0]) != 1)
        for value, number in rest:
            if abs(value) == 1:
                self._code.emit(f"{'vaddps' if value > 0 else 'vsubps'} {target}, {total}, {number}")
            else:
                if total != target:
                    self._code.emit(f"vmovaps {target}, {total}")
                name = "vfmadd231ps" if value > 0 else "vfnmadd231ps"
                self._code.emit(f"{name} {target}, v{self._factors[abs(value)]}, {number}")
            total = target
        return total
