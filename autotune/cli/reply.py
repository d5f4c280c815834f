"""The reply that a command hands to ``main``, the only place that prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.report.plain_text import escaped

DONE, FAILED, USAGE, FROZEN, UNVERIFIED, INTERRUPTED = 0, 1, 2, 3, 4, 130
"""Exit codes: 3 is a frozen run (or a build) that missed a record, 4 outputs that differ from the reference."""


@dataclass(frozen=True)
class Reply:
    """Lines for people, or one JSON object for programs.

    Attributes:
        lines: printed to stdout unless ``as_json``.
        data: printed as one JSON object if ``as_json``.
        complaints: printed to stderr after that.
        code: exit code.
    """

    lines: Iterable[str]
    data: dict[str, Any]
    as_json: bool = False
    complaints: Sequence[str] = field(default=())
    code: int = DONE


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Aligned columns: numbers and what looks like one to the right, the rest to the left."""
    cells = [[escaped(str(cell)) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [list(heads), *cells]) for column in range(len(heads))]
    right = [bool(cells) and all(_is_number(row[column]) for row in cells) for column in range(len(heads))]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if aligned else cell.ljust(width)
            for cell, width, aligned in zip(row, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    return [line(heads), *(line(row) for row in cells)]


def _is_number(text: str) -> bool:
    return text in ("", "–") or text.strip("-×%").replace(".", "", 1).replace(",", "").isdigit()
