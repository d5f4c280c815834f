"""Depthwise convolutions in assembly: right for every shape, knob and epilogue, and equal to the scheduled program."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schedules.lower import assembly, claim
from schedules.templates.assembly.elements import REACH
from schedules.templates.assembly.image_rows import STACK_BYTES
from schedules.templates.assembly.vectors import OutOfScope
from schedules.templates.assembly.window_text import windows_of
from schedules.templates.common.structure import find_anchor
from schedules.templates.cpu.depthwise import DepthwiseTemplate
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import shapes
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    NARROW,
    TARGET,
    covering,
    narrow_runs_here,
    runs_here,
)
from tests.schedules_tests.templates_tests.assembly_tests.assembled_cases import (
    Depthwise,
    check,
    check_thousands_of_calls,
    choices,
)
from tests.schedules_tests.templates_tests.assembly_tests.epilogues import FOLLOWING

CONFIGS, COMPILED = 10, 2
"""Configs of each shape, and how many of them are compared with the compiler's kernel too."""


SHAPES = {
    "3x3": Depthwise((1, 2, 8, 7), (3, 3), pads=(1, 1, 1, 1)),
    "3x3 without border": Depthwise((2, 1, 8, 8), (3, 3)),
    "3x3 strided": Depthwise((1, 3, 9, 11), (3, 3), (2, 2), (1, 1, 1, 1)),
    "5x5": Depthwise((1, 2, 6, 28), (5, 5), pads=(2, 2, 2, 2)),
    "7x7": Depthwise((1, 1, 7, 14), (7, 7), pads=(3, 3, 3, 3)),
    "1x1": Depthwise((1, 2, 4, 6), (1, 1)),
    "one row": Depthwise((1, 2, 1, 12), (1, 3), pads=(0, 1, 0, 1)),
    "dilated": Depthwise((1, 2, 11, 9), (3, 3), pads=(2, 2, 2, 2), dilation=(2, 2)),
    "uneven": Depthwise((2, 1, 9, 8), (3, 2), (2, 1), (1, 0, 2, 3), (1, 2)),
    "batch": Depthwise((3, 2, 4, 6), (3, 3), pads=(1, 1, 1, 1)),
}
"""Name → a depthwise convolution: with borders and without, of tiles that leave registers for all weights and not."""


@runs_here
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_knobs(name: str) -> None:
    check(SHAPES[name], covering(SHAPES[name].program(), CONFIGS), COMPILED)


@narrow_runs_here
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_knobs_of_narrow_vectors(name: str) -> None:
    convolution = replace(SHAPES[name], lanes=8)
    check(convolution, covering(convolution.program(), CONFIGS, target=NARROW), COMPILED, NARROW)


def test_configs_have_every_choice() -> None:
    """What the tests above rely on: both borders, written out and not, tiles of many sizes."""
    seen = choices(SHAPES.values(), CONFIGS)
    assert seen["pad"] == seen["unroll"] == {0, 1}
    assert {1, 7, 14, 28} <= seen["tw"]
    assert {1, 2, 4} <= seen["rows"]


@runs_here
@pytest.mark.parametrize("following", FOLLOWING)
def test_epilogues(following: str) -> None:
    """Of the largest tile, which leaves few registers, and of any."""
    convolution = replace(SHAPES["5x5"], following=following)
    func = convolution.program()
    largest = max(covering(func, CONFIGS), key=lambda config: config.integer("tw"))
    check(convolution, [largest, *covering(func, 2, seed=1)], compiled=1)


@runs_here
def test_rows_that_do_not_fit_the_stack_lie_in_a_workspace() -> None:
    convolution = Depthwise((1, 2, 28, 112), (3, 3), pads=(1, 1, 1, 1))
    config = covering(convolution.program(), 1, pad=1, rows=28)[0]
    assert STACK_BYTES < 30 * 114 * 64
    check(convolution, [config], compiled=1)


@runs_here
def test_thousands_of_calls() -> None:
    check_thousands_of_calls(SHAPES["3x3"])


def test_windows_are_read_from_the_program() -> None:
    by_name = {}
    for name in ("uneven", "3x3 without border"):
        func = SHAPES[name].program()
        anchor = find_anchor(func, "depthwise")
        assert anchor is not None
        by_name[name] = windows_of(func, anchor.block, anchor.padded)
    uneven, without = by_name["uneven"], by_name["3x3 without border"]
    assert (uneven.strides, uneven.dilation, uneven.size, uneven.before) == ((2, 1), (1, 2), (12, 11), (1, 0))
    assert (without.strides, without.dilation, without.size, without.before) == ((1, 1), (1, 1), (8, 8), (0, 0))


@pytest.mark.parametrize("case", [case for case in CASES if case.template == "depthwise"], ids=lambda case: case.name)
def test_scope(case: object) -> None:
    """Whole vectors of channels of float32."""
    dtype, shape = str(case.func.params[0].ty.dtype), shapes(case.func)[-1]
    for target, lanes in ((TARGET, 16), (NARROW, 8)):
        config = claim(case.func, target).space.initial[0]
        assert bool(assembly(case.func, config, target, "k")) == (dtype == "float32" and shape[4] == lanes)


def test_tensors_beyond_an_instructions_reach_are_left_to_the_compiler() -> None:
    side = 5792
    assert side**2 * 64 <= REACH < (side + 2) ** 2 * 64
    func = Depthwise((1, 1, side, side), (3, 3), pads=(1, 1, 1, 1), following="none").program()
    anchor = find_anchor(func, "depthwise")
    assert anchor is not None
    with pytest.raises(OutOfScope, match="2 GiB"):
        DepthwiseTemplate().assembly(func, anchor, covering(func, 1, pad=0)[0], TARGET, "k")
