"""Templates whose configs are loop nests: they say which, and the renderers do the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from tvm import s_tir, tirx

from schedules.config import Config
from schedules.target import Target
from schedules.templates.assembly.picture_text import PictureText
from schedules.templates.assembly.product_text import ColumnsText, ProductText
from schedules.templates.assembly.window_text import WindowText
from schedules.templates.common.structure import Anchor
from schedules.templates.nests.loop_nest import Nest
from schedules.templates.nests.nest_to_tir import to_tir
from schedules.templates.template import MarkedTemplate

WRITTEN: Mapping[str, type[ProductText]] = {"ci": PictureText, "kh": WindowText, "k": ColumnsText}
"""Outermost axis of a nest's sum → what writes it."""


def to_assembly(func: tirx.PrimFunc, nest: Nest, target: Target, symbol: str) -> str:
    """Return the kernel ``symbol`` that runs ``nest`` and the epilogue of ``func``, its normalised program.

    It is text for the system's assembler, in AVX-512 or AVX2. It has the nest's loops, tiles and order of sums, so a
    config means the same as for the compiler. ``OutOfScope`` leaves a nest to the compiler: other instructions, groups
    that straddle blocks, an epilogue that is no arithmetic.

    Raises:
        OutOfScope: for a kernel that is left to the compiler.
    """
    return WRITTEN[nest.summed[0]](func, nest, target, symbol).text()


class NestedTemplate(MarkedTemplate, ABC):
    """Defaults for templates of one marked block whose configs are nests."""

    @abstractmethod
    def nest(self, anchor: Anchor, config: Config) -> Nest:
        """The loops that ``config`` stands for."""

    def assembly(self, func: tirx.PrimFunc, anchor: Anchor, config: Config, target: Target, symbol: str) -> str:
        """Return the nest in AVX-512 or AVX2."""
        return to_assembly(func, self.nest(anchor, config), target, symbol)

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Rewrite ``sch`` in place."""
        to_tir(sch, self.nest(anchor, config), target)
