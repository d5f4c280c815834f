"""Nest → text for the system's assembler, in AVX-512 or AVX2.

The text has the nest's loops, tiles and order of sums, so a config means the same as for the compiler. ``OutOfScope``
leaves a nest to the compiler: other instructions, groups that straddle blocks, an epilogue that is no arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm import tirx

from schedules.target import Target
from schedules.templates.assembly.picture_text import PictureText
from schedules.templates.assembly.product_text import ColumnsText, ProductText
from schedules.templates.assembly.window_text import WindowText
from schedules.templates.nests.loop_nest import Nest

WRITTEN: Mapping[str, type[ProductText]] = {"ci": PictureText, "kh": WindowText, "k": ColumnsText}
"""Outermost axis of a nest's sum → what writes it."""


def to_assembly(func: tirx.PrimFunc, nest: Nest, target: Target, symbol: str) -> str:
    """Return the kernel ``symbol`` that runs ``nest`` and the epilogue of ``func``, its normalised program.

    Raises:
        OutOfScope: for a kernel that is left to the compiler.
    """
    return WRITTEN[nest.summed[0]](func, nest, target, symbol).text()
