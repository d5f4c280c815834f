"""Products by packed weights in assembly: right for every shape, knob and epilogue, like the scheduled program."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from tvm import te, tirx

from schedules.config import Config
from schedules.lower import assembly, claim
from schedules.target import Target
from schedules.templates.assembly.tile_sums import OF_WORDS
from schedules.templates.assembly.vectors import AVX2
from schedules.templates.cpu.matmul import AHEAD, matmul
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import Array, from_te, run, shapes
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    NARROW,
    TARGET,
    covering,
    is_near,
    lines_of,
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
class Product:
    """x (rows, depth) by ``panels`` of ``lanes`` columns, and what follows."""

    rows: int
    depth: int
    panels: int
    following: str = "bias"
    lanes: int = 16

    def program(self) -> tirx.PrimFunc:
        """The normalised function."""
        x, w = (
            te.placeholder((self.rows, self.depth), name="x"),
            te.placeholder((self.panels, self.depth, self.lanes), name="w"),
        )
        after = FOLLOWING[self.following].after(matmul(x, w), (self.panels * self.lanes,), lambda i: (i[1],))
        return from_te(x, w, *after)

    def expected(self, x: Array, w: Array, *operands: Array) -> Array:
        """By NumPy in double precision."""
        out = x.astype(np.float64) @ w.astype(np.float64).transpose(1, 0, 2).reshape(self.depth, -1)
        return FOLLOWING[self.following].expected(out, operands)


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


def check(product: Product, configs: list[Config], compiled: int, target: Target = TARGET) -> None:
    """Every config near NumPy's numbers, some of them nearer to the compiler's kernel."""
    func = product.program()
    given, shape = numbers(func, scale=0.5), shapes(func)[-1]
    right = product.expected(*given)
    for number, config in enumerate(configs):
        text = text_of(func, config, target=target)
        found = run_watched(text, given, shape, threads=1 + number % 3)
        assert product.following in EXACT_STEPS or is_near(found, right, 1e-5), config.to_json()
        if number < compiled:
            assert is_near(found, run(func, config, target, given), 1e-6), config.to_json()
            assert np.array_equal(run_by_tvm(text, given, shape, threads=1 + number % 2), found), config.to_json()


@runs_here
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_knobs(name: str) -> None:
    check(SHAPES[name], covering(SHAPES[name].program(), CONFIGS), COMPILED)


def test_configs_have_every_choice() -> None:
    """What the test above relies on."""
    seen: dict[str, set[int]] = {}
    for product in SHAPES.values():
        for config in covering(product.program(), CONFIGS):
            for knob, value in config.items:
                seen.setdefault(knob, set()).add(int(value))
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
    assert assembly(func, covering(func, 1)[0], TARGET, "k") == ""


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
