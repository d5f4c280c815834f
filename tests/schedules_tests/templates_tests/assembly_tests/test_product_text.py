"""Products by packed weights in assembly: right for every shape, knob and epilogue, like the scheduled program."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from schedules.lower import assembly, claim
from schedules.templates.assembly.tile_sums import OF_WORDS
from schedules.templates.assembly.vectors import AVX2
from schedules.templates.cpu.matmul import AHEAD, matmul
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import from_te, shapes
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    NARROW,
    TARGET,
    covering,
    lines_of,
    runs_here,
    text_of,
)
from tests.schedules_tests.templates_tests.assembly_tests.assembled_cases import Product, check, choices, is_left
from tests.schedules_tests.templates_tests.assembly_tests.epilogues import FOLLOWING

CONFIGS, COMPILED = 10, 2
"""Configs of each shape, and how many of them are compared with the compiler's kernel too."""


SHAPES = {
    "vector": Product(1, 96, 6),
    "short vector": Product(1, 24, 4),
    "vector of twice what is asked ahead": Product(1, 2 * AHEAD // 64, 3),
    "vector of just what is asked ahead": Product(1, AHEAD // 64, 3),
    "long vector": Product(1, 520, 8),
    "bare vector": Product(1, 80, 4, "none"),
    "two rows": Product(2, 40, 3),
    "odd": Product(7, 9, 5),
    "rows": Product(12, 72, 4),
    "tiles of 4 by 7 and of 7 by 4": Product(28, 32, 28),
    "many rows": Product(128, 48, 2),
    "bare": Product(24, 33, 2, "none"),
    "chunks": Product(16, 1536, 2),
    "bare chunks": Product(32, 768, 3, "none"),
    "one panel": Product(30, 64, 1),
    "rows that no tile divides": Product(37, 40, 3),
    "the same, bare": Product(59, 33, 2, "none"),
    "the same, in chunks": Product(43, 768, 2),
    "the same, more than a job has otherwise": Product(521, 20, 2),
}
"""Name → a product: vectors, depths that no lines of weights divide, sums in chunks."""


@runs_here
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_knobs(name: str) -> None:
    check(SHAPES[name], covering(SHAPES[name].program(), CONFIGS), COMPILED)


def test_configs_have_every_choice() -> None:
    """What the test above relies on."""
    seen = choices(SHAPES.values(), CONFIGS)
    assert seen["outer"] == {0, 1}
    assert seen["unroll"] == {1, 2, 4, 8, 16}
    assert {1, 2, 4, 7} <= seen["tm"]
    assert {1, 2, 4, 7} <= seen["tn"]
    assert {192, 384, 768, 1536} <= seen["depth"]


@runs_here
@pytest.mark.parametrize(("tm", "tn"), [(4, 7), (7, 4), (14, 2), (28, 1), (2, 14)])
def test_tiles_that_leave_four_registers(tm: int, tn: int) -> None:
    """28 sums: four operands are held and none is left to spread the others."""
    product = Product(28, 32, 28, "residual")
    if tn > 8:
        with pytest.raises(AssertionError):  # the space has no such tile
            covering(product.program(), 1, tm=tm, tn=tn)
        return
    check(product, covering(product.program(), 3, tm=tm, tn=tn), compiled=1)


@runs_here
@pytest.mark.parametrize("rows", [1, 16], ids=["vector", "chunks"])
@pytest.mark.parametrize("following", FOLLOWING)
def test_epilogues(following: str, rows: int) -> None:
    product = Product(rows, 384, 4, following)
    func = product.program()
    configs = covering(func, 2, seed=rows) if rows == 1 else covering(func, 2, depth=192)
    check(product, configs, compiled=1)


@runs_here
def test_numbers_that_are_asked_ahead_are_those_of_the_next_tiles() -> None:
    """A row of x asks for its own panel's weights; many rows for the next panel's, or the next chunk's."""
    vector = text_of(Product(1, 512, 8).program(), covering(Product(1, 512, 8).program(), 1)[0])
    assert any(line.startswith(f"prefetcht0 [rsi+{AHEAD}") for line in lines_of(vector))
    rows = text_of(Product(128, 512, 8).program(), covering(Product(128, 512, 8).program(), 1, tm=4, tn=4)[0])
    assert "prefetcht1 [r9+0]" in lines_of(rows)


def crop(columns: int) -> tirx.PrimFunc:
    """A product of which the last columns fill up a panel, as of ten classes."""
    x, w = te.placeholder((8, 64), name="x"), te.placeholder((2, 64, 16), name="w")
    out = matmul(x, w)
    return from_te(x, w, te.compute((8, columns), lambda m, n: out[m, n], name="crop"))


def test_a_result_without_the_last_columns_is_left_to_the_compiler() -> None:
    assert assembly(crop(26), covering(crop(26), 1)[0], TARGET, "k") == ""
    assert text_of(crop(32), covering(crop(32), 1)[0])


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_floats_are_left_to_the_compiler(dtype: str) -> None:
    x, w = te.placeholder((8, 64), dtype, name="x"), te.placeholder((2, 64, 16), dtype, name="w")
    func = from_te(x, w, matmul(x, w))
    assert is_left(func)


@pytest.mark.parametrize("case", [case for case in CASES if case.template == "matmul"], ids=lambda case: case.name)
def test_scope(case: object) -> None:
    """Whole vectors of columns of float32."""
    config = claim(case.func, TARGET).space.initial[0]
    dtype, lanes = str(case.func.params[0].ty.dtype), shapes(case.func)[1][2]
    assert bool(assembly(case.func, config, TARGET, "k")) == (dtype == "float32" and lanes == 16)
    config = claim(case.func, NARROW).space.initial[0]
    fits = dtype == "float32" or (
        dtype == "uint8" and config.integer("tm") * config.integer("tn") + OF_WORDS <= AVX2.count
    )
    assert bool(assembly(case.func, config, NARROW, "k")) == (fits and lanes == 8)


def test_a_matrix_that_is_computed_first_is_left_to_the_compiler() -> None:
    x, w = te.placeholder((8, 64), name="x"), te.placeholder((2, 64, 16), name="w")
    twice = te.compute((8, 64), lambda m, k: x[m, k] + x[m, k], name="twice")
    func = from_te(x, w, matmul(twice, w))
    claimed = claim(func, TARGET)
    assert claimed.template == "matmul"
    assert assembly(func, claimed.space.initial[0], TARGET, "k") == ""
