"""The innermost loop of a kernel in its assembly: how many products it has, and what it keeps on the stack."""

from __future__ import annotations

import re
from dataclasses import dataclass

LABEL = re.compile(r"(\.L\w+):")
JUMP = re.compile(r"\t(?:b|b\.\w+|cbn?z|tbn?z|j\w+|b(?:eq|ne|lt|ge)[zu]?u?)\t(?:.*, *)?(\.L\w+)$")
PRODUCT = re.compile(
    r"\t(?:fmla|[su]{1,2}dot|bfdot|[su]{1,2}mmla|bfmmla|vfmadd\w+|vpdpbusd|vpmaddwd|vdpbf16ps|vfmacc\.\w+)\t"
)
STACK = re.compile(r"\[r?sp|\(%rsp|, -?\w*\(sp\)")


@dataclass(frozen=True)
class HotLoop:
    """A loop without loops inside.

    Attributes:
        lines: its instructions, a line of assembly each.
        products: instructions that multiply and add vectors.
        stack: instructions that read or write the stack: registers that were spilt.
    """

    lines: tuple[str, ...]
    products: int
    stack: int


def hot_loop(assembly: str) -> HotLoop | None:
    """The innermost loop with the most products; None in code without loops that have one.

    Args:
        assembly: as LLVM and ``assembly_text.py`` write it, of x86-64, AArch64 or RISC-V.
    """
    lines = assembly.splitlines()
    labels = {match.group(1): at for at, line in enumerate(lines) if (match := LABEL.match(line))}
    jumps = ((at, match.group(1)) for at, line in enumerate(lines) if (match := JUMP.match(line)))
    loops = [(labels[label], at) for at, label in jumps if label in labels and labels[label] < at]
    innermost = [
        (start, end)
        for start, end in loops
        if not any((start, end) != (a, b) and start <= a and b <= end for a, b in loops)
    ]
    bodies = [_loop(lines[start : end + 1]) for start, end in innermost]
    return max((loop for loop in bodies if loop.products), key=lambda loop: loop.products, default=None)


def _loop(lines: list[str]) -> HotLoop:
    instructions = tuple(line for line in lines if line.startswith("\t") and not line.startswith("\t."))
    products, stack = (sum(bool(sign.search(line)) for line in instructions) for sign in (PRODUCT, STACK))
    return HotLoop(instructions, products, stack)
