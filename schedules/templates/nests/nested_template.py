"""Templates whose configs are loop nests: they say which, and the renderers do the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tvm import s_tir, tirx

from schedules.config import Config
from schedules.target import Target
from schedules.templates.assembly.nest_to_assembly import to_assembly
from schedules.templates.common.structure import Anchor
from schedules.templates.nests.loop_nest import Nest
from schedules.templates.nests.nest_to_tir import to_tir
from schedules.templates.template import MarkedTemplate


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
