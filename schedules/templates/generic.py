"""Everything that reduces and that no other template claims, through TVM's own CPU design space.

MetaSchedule's rules write *sketches*, lists of schedule steps in which some numbers are drawn (``sketches.py``). Those
numbers are our knobs, and applying a config is replaying its sketch with its own numbers:

    for i, j, k: c += a·b            parallel i0·j0·i1·j1:                 tile4x…: (i0, i1, i2, i3), (j0, j1, j2, j3)
    for i, j: d = f(c)        →          k0, i2, j2, k1, i3, vector j3     tile2x…: (k0, k1)
                                         f on a tile, or in a nest of      sketch, unroll, place
                                         its own

A knob that the chosen sketch does not draw is ignored by it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import tvm_ffi
from tvm import s_tir, tirx

from schedules.config import Config, Value
from schedules.errors import ScheduleError, check
from schedules.space import Knob, Space
from schedules.target import Target
from schedules.templates.sketches import Design, design
from schedules.templates.structure import (
    REDUCE,
    SPATIAL,
    Anchor,
    OneAlgorithm,
    blocks_in_order,
    extents,
    parameter_shapes,
)
from schedules.templates.vector_math import vector_math

OP = "generic"
PROBE = Target(kind="llvm", isa="avx2", threads=2)
"""A common machine on which a function is tried before it is claimed."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Program(Anchor):
    """An anchor that keeps its function: the space is read off the program itself."""

    func: tirx.PrimFunc = field(compare=False, kw_only=True)


class GenericTemplate(OneAlgorithm):
    """Match, space and rewrite for functions that reduce in ways no other template knows."""

    name = OP
    version = 1

    def match(self, func: tirx.PrimFunc) -> Program | None:
        """The last block, if TVM's rules draw a number here and replaying the first guess succeeds."""
        blocks = blocks_in_order(func)
        if not any(extents(block, REDUCE) for block in blocks):
            return None
        names = tuple(block.name_hint for block in blocks)
        last = blocks[-1]
        program = Program(
            block=last.name_hint,
            spatial=extents(last, SPATIAL),
            reduction=extents(last, REDUCE),
            epilogue=(),
            prologue=names[:-1],
            shapes=parameter_shapes(func),
            func=func,
        )
        return program if _replays(tvm_ffi.StructuralKey(func)) else None

    def prepare(self, func: tirx.PrimFunc, anchor: Anchor, config: Config) -> tirx.PrimFunc:
        """``func`` with exp and its like as arithmetic; the sketches' steps apply to it all the same."""
        return vector_math(func)

    def space(self, anchor: Anchor, target: Target) -> Space:
        """Which sketch, and every number that the sketches draw."""
        assert isinstance(anchor, Program)
        return _space(design(anchor.func, target))

    def apply(self, sch: s_tir.Schedule, anchor: Anchor, config: Config, target: Target) -> None:
        """Replay the config's sketch on ``sch`` with its numbers, then TVM's own finishing steps."""
        assert isinstance(anchor, Program)
        found = design(anchor.func, target)
        sketch = config.integer("sketch")
        check(sketch < len(found.traces), f"sketch is {sketch}, the function has {len(found.traces)}")
        found.replay(sch, sketch, dict(config.items))


def _space(found: Design) -> Space:
    choices = {
        sample.knob: sample.choices for samples in found.samples for sample in samples if len(sample.choices) > 1
    }
    sketches = Knob("sketch", tuple(range(len(found.traces))))
    knobs = (sketches, *(Knob(name, values) for name, values in choices.items()))
    space = Space(OP, GenericTemplate.version, knobs)
    return Space(OP, GenericTemplate.version, knobs, first=tuple(_first_guesses(space, found)))


def _first_guesses(space: Space, found: Design) -> Iterator[Config]:
    """One config per sketch, the plainest first."""
    guesses: dict[str, Value] = {}
    for samples in found.samples:
        for sample in samples:
            guesses.setdefault(sample.knob, sample.guess)
    for sketch in range(len(found.traces)):
        chosen = {**guesses, "sketch": sketch, **{s.knob: s.guess for s in found.samples[sketch]}}
        yield Config(space.identity, tuple((knob.name, chosen[knob.name]) for knob in space.knobs))


@lru_cache(maxsize=256)
def _replays(func: tvm_ffi.StructuralKey) -> bool:
    """Whether the first guess can be applied; a function on which it cannot is left to the baseline."""
    try:
        found = design(func.key, PROBE)
        if not any(found.samples):
            return False
        space = _space(found)
        sketch = space.first[0].integer("sketch")
        found.replay(s_tir.Schedule(vector_math(func.key)), sketch, dict(space.first[0].items))
    except (s_tir.ScheduleError, ScheduleError, ValueError, RuntimeError) as error:
        logger.debug("the generic space does not fit a function: %s", error)
        return False
    return True
