"""Depthwise convolutions in assembly: right for every shape, knob and epilogue, and equal to the scheduled program."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from tvm import te, tirx

from schedules.config import Config
from schedules.lower import assembly, claim
from schedules.target import Target
from schedules.templates.assembly.elements import REACH
from schedules.templates.assembly.image_rows import STACK_BYTES
from schedules.templates.assembly.vectors import OutOfScope
from schedules.templates.assembly.window_text import windows_of
from schedules.templates.common.structure import find_anchor
from schedules.templates.cpu.depthwise import DepthwiseTemplate, depthwise
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import Array, Pads, Shape, from_te, padded, run, shapes, windows
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    NARROW,
    TARGET,
    covering,
    is_near,
    narrow_runs_here,
    numbers,
    run_by_tvm,
    run_watched,
    runs_here,
    text_of,
)
from tests.schedules_tests.templates_tests.assembly_tests.epilogues import EXACT_STEPS, FOLLOWING

CONFIGS, COMPILED = 10, 2
"""Configs of each shape, and how many of them are compared with the compiler's kernel too."""


@dataclass(frozen=True)
class Depthwise:
    """One depthwise convolution of blocks of ``lanes`` channels, and what follows it."""

    data: Shape
    filters: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    following: str = "bias"
    lanes: int = 16

    def program(self) -> tirx.PrimFunc:
        """The normalised function."""
        blocks = self.data[1]
        x = te.placeholder((*self.data, self.lanes), name="x")
        w = te.placeholder((blocks, *self.filters, self.lanes), name="w")
        out = depthwise(x, w, self.strides, self.pads, self.dilation)
        bias = (1, blocks, 1, 1, self.lanes)
        return from_te(x, w, *FOLLOWING[self.following].after(out, bias, lambda i: (0, i[1], 0, 0, i[4])))

    def expected(self, x: Array, w: Array, *operands: Array) -> Array:
        """By NumPy in double precision."""
        seen = windows(padded(x.astype(np.float64), self.pads), self.filters, self.strides, self.dilation)
        out = np.einsum("nchwbyx,cyxb->nchwb", seen, w.astype(np.float64))
        return FOLLOWING[self.following].expected(out, operands)


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


def check(convolution: Depthwise, configs: list[Config], compiled: int, target: Target = TARGET) -> None:
    """Every config near NumPy's numbers, some of them nearer to the compiler's kernel."""
    func = convolution.program()
    given, shape = numbers(func, scale=0.5), shapes(func)[-1]
    right = convolution.expected(*given)
    for number, config in enumerate(configs):
        text = text_of(func, config, target=target)
        found = run_watched(text, given, shape, threads=1 + number % 3)
        assert convolution.following in EXACT_STEPS or is_near(found, right, 1e-5), config.to_json()
        if number < compiled:
            assert is_near(found, run(func, config, target, given), 1e-6), config.to_json()
            assert np.array_equal(run_by_tvm(text, given, shape, threads=1 + number % 2), found), config.to_json()


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
    seen: dict[str, set[int]] = {}
    for convolution in SHAPES.values():
        for config in covering(convolution.program(), CONFIGS):
            for knob, value in config.items:
                seen.setdefault(knob, set()).add(int(value))
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
    """Nothing is left on stacks, and workspaces come back."""
    convolution = SHAPES["3x3"]
    func = convolution.program()
    given = numbers(func)
    for pad in (0, 1):
        text = text_of(func, covering(func, 1, pad=pad)[0])
        found = run_by_tvm(text, given, shapes(func)[-1], calls=3000)
        assert is_near(found, convolution.expected(*given), 1e-5)


def test_windows_are_read_from_the_program() -> None:
    found = {}
    for name in ("uneven", "3x3 without border"):
        func = SHAPES[name].program()
        anchor = find_anchor(func, "depthwise")
        assert anchor is not None
        found[name] = windows_of(func, anchor.block, anchor.padded)
    uneven, without = found["uneven"], found["3x3 without border"]
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
