"""Checks of TVM's schedule steps that change a program's meaning without complaint."""

from __future__ import annotations

import math

from tvm import s_tir, tirx

from schedules.templates.common.structure import REDUCE, SPATIAL, extents, places


def repeated_sum(func: tirx.PrimFunc) -> str | None:
    """A block that TVM would start once and sum several times, or None.

    ``RewriteReductionBlock`` starts a sum before the first loop around it that *any* block below reduces over. Where
    that loop is another sum's, as in a mean that was moved into the loop of the variance, every turn adds the whole
    sum once more.
    """
    used = [(place, *_variables(place.realize)) for place in places(func)]
    summed = {variable for *_, reduced in used for variable in reduced}
    for place, bound, _ in used:
        started = next((at for at, loop in enumerate(place.loops) if loop.loop_var in summed), len(place.loops))
        within = (loop for loop in place.loops[started:] if _turns(loop) != 1)
        if place.realize.block.init is not None and any(loop.loop_var not in bound for loop in within):
            return str(place.realize.block.name_hint)
    return None


def unwritten(func: tirx.PrimFunc) -> str | None:
    """A block that writes a result and runs less often than the result has elements, or None.

    A padding that ``reverse_compute_at`` moves to the tiles of what it pads loses what lies outside of them.
    """
    for place in places(func):
        block = place.realize.block
        writes = any(region.source.same_as(parameter) for region in block.writes for parameter in func.params)
        if place.depth != 1 or not writes:
            continue
        turns = [_turns(loop) for loop in place.loops]
        if 0 not in turns and math.prod(turns) < math.prod(extents(block, SPATIAL)):
            return str(block.name_hint)
    return None


def _turns(loop: tirx.For) -> int:
    """Return how often a loop runs; 0 where that depends."""
    return int(loop.extent.value) if isinstance(loop.extent, tirx.IntImm) else 0


def _variables(realize: s_tir.SBlockRealize) -> tuple[set[tirx.Var], set[tirx.Var]]:
    """Loop variables that a block's axes are bound to, and those that its reduction axes are."""
    bound: set[tirx.Var] = set()
    reduced: set[tirx.Var] = set()
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        variables = tirx.analysis.undefined_vars(value, [])
        bound.update(variables)
        if axis.iter_type == REDUCE:
            reduced.update(variables)
    return bound, reduced
