"""Common code of the templates of TVM's own design spaces: any function that reduces, tried before it is claimed.

MetaSchedule's rules write *sketches*, lists of schedule steps in which some numbers are drawn (``sketches.py``). Those
numbers are the knobs, and applying a config is replaying its sketch with its own numbers. A knob that the chosen sketch
does not draw is ignored by it.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from dataclasses import dataclass, field
from functools import lru_cache

import tvm_ffi
from tvm import s_tir, tirx

from schedules.config import Config
from schedules.space import Space
from schedules.target import Target
from schedules.templates.common.sketches import Design
from schedules.templates.common.structure import REDUCE, Anchor, about_last, blocks_in_order, extents, parameter_shapes
from schedules.templates.template import OneAlgorithm
from schedules.vocabulary.errors import ScheduleError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Program(Anchor):
    """An anchor that keeps its function: the space is read off the program itself."""

    func: tirx.PrimFunc = field(compare=False, kw_only=True)


class SketchTemplate(OneAlgorithm[Program]):
    """Match, space and rewrite for functions that reduce in ways no other template knows.

    Attributes:
        name, version: as a template's.
        probe: a common machine on which a function is tried before it is claimed.
    """

    name: str
    version: int
    probe: Target

    @abstractmethod
    def expand(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Return the function that sketches of ``func`` are applied to: as ``TemplateSet.expand``."""

    @abstractmethod
    def draw(self, func: tirx.PrimFunc, target: Target) -> Design:
        """Return the design that the rules for this kind of target write for ``func``: the same in every process."""

    def match(self, func: tirx.PrimFunc) -> Program | None:
        """``func`` around its last block, if any block reduces, the rules draw a number and the first guess applies."""
        blocks = blocks_in_order(func)
        if not any(extents(block, REDUCE) for block in blocks):
            return None
        applies = _applies(self, tvm_ffi.StructuralKey(func), self.probe)
        return Program(**vars(about_last(blocks, parameter_shapes(func))), func=func) if applies else None

    def space(self, anchor: Program, target: Target) -> Space:
        """Return which sketch, and every number that the sketches draw."""
        key = tvm_ffi.StructuralKey(anchor.func)
        return _design(self, key, target).space(self.name, self.version)

    def apply(self, sch: s_tir.Schedule, anchor: Program, config: Config, target: Target) -> None:
        """Replay the config's sketch on ``sch`` with its numbers, then TVM's own finishing steps."""
        _design(self, tvm_ffi.StructuralKey(anchor.func), target).apply(sch, config)


@lru_cache(maxsize=64)
def _design(template: SketchTemplate, func: tvm_ffi.StructuralKey, target: Target) -> Design:
    """The sketches of a function, remembered, since each of its configs asks for them."""
    return template.draw(func.key, target)


@lru_cache(maxsize=256)
def _applies(template: SketchTemplate, func: tvm_ffi.StructuralKey, target: Target) -> bool:
    """Return whether the rules fit, draw a number, and the first guess applies."""
    try:
        design = _design(template, func, target)
        if not design.usable or not any(design.samples):
            return False
        first = design.space(template.name, template.version).initial[0]
        design.apply(s_tir.Schedule(template.expand(func.key)), first)
    except (s_tir.ScheduleError, ScheduleError, ValueError, RuntimeError) as error:
        logger.debug("TVM's rules do not fit a function: %s", error)
        return False
    return True
