"""Direct convolutions in assembly: right for every shape, knob and epilogue, and equal to the scheduled program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import te, tirx

from schedules.lower import assembly, claim
from schedules.templates.assembly.elements import REACH
from schedules.templates.assembly.vectors import OutOfScope
from schedules.templates.common.structure import find_anchor
from schedules.templates.common.windows import Window
from schedules.templates.cpu.conv2d import conv2d
from schedules.templates.nests.nested_template import to_assembly
from schedules.templates.nests.product_nests import conv2d_nest
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import Shape, from_te, shapes
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    NARROW,
    TARGET,
    covering,
    largest_tile,
    lines_of,
    runs_here,
    text_of,
)
from tests.schedules_tests.templates_tests.assembly_tests.assembled_cases import (
    Convolution,
    check,
    check_thousands_of_calls,
    choices,
    is_left,
)
from tests.schedules_tests.templates_tests.assembly_tests.epilogues import FOLLOWING

CONFIGS, COMPILED = 12, 2
"""Configs of each shape, and how many of them are compared with the compiler's kernel too."""


SHAPES = {
    "1x1": Convolution((1, 2, 6, 5, 16), (3, 2, 1, 1, 16, 16)),
    "1x1 strided": Convolution((1, 2, 8, 9, 16), (2, 2, 1, 1, 16, 16), (2, 2)),
    "1x1 of one pixel": Convolution((1, 3, 1, 1, 16), (4, 3, 1, 1, 16, 16)),
    "3x3": Convolution((1, 2, 8, 7, 16), (4, 2, 3, 3, 16, 16), pads=(1, 1, 1, 1)),
    "3x3 without border": Convolution((1, 1, 8, 8, 16), (2, 1, 3, 3, 16, 16)),
    "5x5": Convolution((1, 1, 7, 6, 16), (2, 1, 5, 5, 16, 16), pads=(2, 2, 2, 2)),
    "first layer": Convolution((1, 3, 17, 17), (2, 3, 7, 7, 1, 16), (2, 2), (3, 3, 3, 3)),
    "first layer of whole lines": Convolution((2, 3, 8, 16), (2, 3, 3, 3, 1, 16), pads=(1, 1, 1, 1)),
    "first layer without border": Convolution((1, 3, 9, 11), (2, 3, 3, 3, 1, 16), (2, 2)),
    "batch": Convolution((3, 2, 4, 6, 16), (2, 2, 3, 3, 16, 16), pads=(1, 1, 1, 1)),
    "dilated": Convolution((1, 2, 11, 9, 16), (2, 2, 3, 3, 16, 16), pads=(2, 2, 2, 2), dilation=(2, 2)),
    "uneven": Convolution((2, 1, 9, 8, 16), (2, 1, 3, 2, 16, 16), (2, 1), (1, 0, 2, 3), (1, 2)),
    "grouped": Convolution((2, 4, 6, 6, 16), (4, 2, 3, 3, 16, 16), pads=(1, 1, 1, 1), groups=2),
    "grouped 1x1": Convolution((1, 4, 4, 4, 16), (8, 1, 1, 1, 16, 16), groups=4),
    "width 13": Convolution((1, 2, 4, 13, 16), (4, 2, 1, 1, 16, 16)),
    "width 17": Convolution((2, 1, 4, 17, 16), (4, 1, 3, 3, 16, 16), pads=(1, 1, 1, 1)),
    "long": Convolution((1, 16, 6, 4, 16), (4, 16, 1, 1, 16, 16)),
    "long 3x3": Convolution((2, 4, 4, 6, 16), (2, 4, 3, 3, 16, 16), pads=(1, 1, 1, 1)),
}
"""Name → a convolution: plain and blocked, borders of every kind, rows that tiles do not divide, sums in chunks."""


@runs_here
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_knobs(name: str) -> None:
    func = SHAPES[name].program()
    check(SHAPES[name], covering(func, CONFIGS, algorithm=0), COMPILED)


def test_configs_have_every_choice() -> None:
    """What the test above relies on: both borders, both orders of jobs, chunks, tiles of many blocks and rows."""
    seen = choices(SHAPES.values(), CONFIGS, algorithm=0)
    assert seen["pad"] == seen["outer"] == {0, 1}
    assert seen["unroll"] == {1, 2, 4, 8, 16}
    assert {1, 2, 4} <= seen["to"]
    assert {1, 2} <= seen["th"]
    assert {5, 7} <= seen["tw"]
    assert {1, 2, 4, 16} <= seen["depth"]


@runs_here
@pytest.mark.parametrize("following", FOLLOWING)
def test_epilogues(following: str) -> None:
    """Of the largest tile, which leaves few registers, of a sum in chunks and of any."""
    convolution = replace(SHAPES["long"], following=following, data=(1, 16, 4, 7, 16))
    func = convolution.program()
    largest = largest_tile(func, ("to", "th", "tw"))
    assert largest.integer("to") * largest.integer("th") * largest.integer("tw") == 28
    check(convolution, [largest, *covering(func, 1, depth=4), *covering(func, 2, seed=1)], compiled=1)


@runs_here
def test_an_epilogue_that_needs_more_registers_than_a_large_tile_leaves() -> None:
    convolution = replace(SHAPES["1x1"], following="crowded", data=(1, 2, 4, 7, 16), weight=(4, 2, 1, 1, 16, 16))
    func = convolution.program()
    text = text_of(func, largest_tile(func, ("to", "th", "tw")))
    assert any(line.startswith("vmovaps zmm0, [rsp+") for line in lines_of(text))
    check(convolution, covering(func, 8, algorithm=0), compiled=1)


@runs_here
def test_operands_of_every_batch_and_of_one_block() -> None:
    """A residual with a batch; and a convolution of one block, whose bias has no stride between blocks."""
    batch = replace(SHAPES["batch"], following="residual")
    check(batch, covering(batch.program(), 4, algorithm=0), compiled=1)
    alone = Convolution((1, 1, 4, 4, 16), (1, 1, 1, 1, 16, 16), following="residual")
    check(alone, covering(alone.program(), 4, algorithm=0), compiled=1)


@runs_here
def test_thousands_of_calls() -> None:
    check_thousands_of_calls(SHAPES["3x3"], algorithm=0)


def with_last(stage: object, out_shape: Shape, **tensors: Shape) -> tirx.PrimFunc:
    """A 1x1 convolution with one stage behind it, which gets its sums and further tensors."""
    x, w = te.placeholder((1, 2, 6, 5, 16), name="x"), te.placeholder((3, 2, 1, 1, 16, 16), name="w")
    out = conv2d(x, w, Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1)))
    others = [te.placeholder(shape, name=name) for name, shape in tensors.items()]
    return from_te(x, w, *others, te.compute(out_shape, lambda *i: stage(i, out, *others), name="last"))


WHOLE = (1, 3, 6, 5, 16)
OUT_OF_SCOPE = {
    "a smaller result": lambda: with_last(lambda i, out: out(*i), (1, 3, 5, 5, 16)),
    "fewer blocks": lambda: with_last(lambda i, out: out(*i), (1, 2, 6, 5, 16)),
    "another place": lambda: with_last(lambda i, out: out(i[0], i[1], 5 - i[2], i[3], i[4]), WHOLE),
    "a gate of pixels": lambda: with_last(
        lambda i, out, g: out(*i) * g(0, 0, i[2], i[3], i[4]), WHOLE, g=(1, 1, 6, 5, 16)
    ),
    "one number for all": lambda: with_last(lambda i, out, g: out(*i) * g(0), WHOLE, g=(1,)),
    "integers": lambda: with_last(lambda i, out: out(*i).astype("int64").astype("float32"), WHOLE),
    "a remainder": lambda: with_last(lambda i, out: te.fmod(out(*i), tirx.const(2.0, "float32")), WHOLE),
    "two conditions": lambda: with_last(
        lambda i, out: tirx.Select(tirx.all(out(*i) > 0.0, out(*i) < 1.0), out(*i), tirx.const(0.0, "float32")), WHOLE
    ),
    "an index": lambda: with_last(lambda i, out: out(*i) + i[3].astype("float32"), WHOLE),
    "six tensors": lambda: with_last(
        lambda i, out, *others: out(*i) + sum((other(*i) for other in others[1:]), others[0](*i)),
        WHOLE,
        **{f"r{number}": WHOLE for number in range(6)},
    ),
}


@pytest.mark.parametrize("name", OUT_OF_SCOPE)
def test_what_is_left_to_the_compiler(name: str) -> None:
    func = OUT_OF_SCOPE[name]()
    claimed = claim(func, TARGET)
    assert claimed.template == "conv2d"
    assert {assembly(func, config, TARGET, "k") for config in claimed.space.sample(20, np.random.default_rng(0))} == {
        ""
    }


def test_a_stage_that_is_written_has_the_form_of_those_that_are_not() -> None:
    """So that the test above does not pass for another reason."""
    assert text_of(
        with_last(lambda i, out: out(*i) + out(*i), WHOLE), covering(with_last(lambda i, out: out(*i), WHOLE), 1)[0]
    )


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_floats_are_left_to_the_compiler(dtype: str) -> None:
    x, w = te.placeholder((1, 2, 6, 5, 16), dtype, name="x"), te.placeholder((3, 2, 1, 1, 16, 16), dtype, name="w")
    func = from_te(x, w, conv2d(x, w, Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))))
    assert is_left(func, algorithm=0)


@pytest.mark.parametrize("case", [case for case in CASES if case.template == "conv2d"], ids=lambda case: case.name)
def test_scope(case: object) -> None:
    """Whole vectors of channels of float32, in groups of whole blocks."""
    config = claim(case.func, TARGET).space.initial[0]
    shape, dtype = shapes(case.func)[-1], str(case.func.params[0].ty.dtype)
    whole = dtype == "float32" and "straddling" not in case.name and case.name != "conv2d_odd_channels"
    assert bool(assembly(case.func, config, TARGET, "k")) == (whole and shape[4] == 16)
    config = claim(case.func, NARROW).space.initial[0]
    assert bool(assembly(case.func, config, NARROW, "k")) == (whole and shape[4] == 8), config.to_json()


def test_a_border_that_is_not_zero_is_left_to_the_compiler() -> None:
    x, w = te.placeholder((1, 2, 6, 5, 16), name="x"), te.placeholder((3, 2, 3, 3, 16, 16), name="w")
    func = from_te(x, w, conv2d(x, w, Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)), border=1))
    assert is_left(func, algorithm=0)


def test_tensors_beyond_an_instructions_reach_are_left_to_the_compiler() -> None:
    """2 GiB of data, or of data with its border."""
    side = 5792
    assert side**2 * 64 <= REACH < (side + 2) ** 2 * 64
    for size, pads in ((side + 2, (0, 0, 0, 0)), (side, (1, 1, 1, 1))):
        convolution = Convolution((1, 1, size, size, 16), (1, 1, 3, 3, 16, 16), pads=pads, following="none")
        func = convolution.program()
        anchor = find_anchor(func, "conv2d")
        assert anchor is not None
        config = covering(func, 1, algorithm=0, pad=0)[0]
        with pytest.raises(OutOfScope, match="2 GiB"):
            to_assembly(func, conv2d_nest(anchor, dict(config.items)), TARGET, "k")


def test_rows_that_do_not_fit_the_stack_are_left_to_the_compiler() -> None:
    convolution = Convolution((1, 8, 14, 60, 16), (1, 8, 3, 3, 16, 16), pads=(1, 1, 1, 1))
    func = convolution.program()
    texts = {pad: assembly(func, covering(func, 1, algorithm=0, pad=pad)[0], TARGET, "k") for pad in (0, 1)}
    assert texts[0]
    assert not texts[1]
