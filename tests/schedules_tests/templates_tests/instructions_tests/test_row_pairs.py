"""Products of two rows at once: exact under QEMU, and nothing but products and loads in the hot loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import s_tir, te

from research.peaks import layer
from schedules.lower import claim, lower, tvm_target
from schedules.target import Target
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions import dots
from schedules.templates.instructions.dots import BF16, PAIRS, S8S8, U8S8, DotForm, pair_form
from schedules.templates.instructions.hot_loop import hot_loop
from schedules.templates.instructions.row_pairs import apart, use_pairs
from tests.emulation.kernels import Kernel, needs, run_emulated
from tests.schedules_tests.programs import from_te

N2 = Target.cpu("neoverse-n2", 1)


def test_processors_with_the_instructions_have_the_forms() -> None:
    assert [pair_form(form, N2) for form in (U8S8, BF16)] == list(PAIRS)
    assert pair_form(S8S8, Target.cpu("neoverse-n1", 1)) is None
    assert pair_form(U8S8, Target.cpu("znver5", 1)) is None


@pytest.mark.parametrize(("form", "lanes", "instruction"), [(PAIRS[0], 8, "usmmla"), (PAIRS[1], 4, "bfmmla")])
@pytest.mark.parametrize("size", [14, 7])
def test_sums_stay_in_the_order_of_the_instruction(form: DotForm, lanes: int, instruction: str, size: int) -> None:
    """No element moves between registers in the innermost loop, and none to the stack."""
    func = layer(64, 64, size, 3, form, lanes)
    built = compiled(lower(func, claim(func, N2).space.initial[0], N2).mod["main"], "main", tvm_target(N2))
    loop = hot_loop(str(built.mod.inspect_source("asm")))
    assert loop is not None
    assert loop.stack == 0
    vectors = {line.split()[0] for line in loop.lines if "\tv" in line or "\tq" in line or "\td" in line}
    assert vectors <= {instruction, "ldr", "ldp", "ldur"}
    assert loop.products >= 8


@pytest.mark.parametrize("together", [True, False], ids=["together", "separate"])
@pytest.mark.parametrize("form", PAIRS, ids=lambda form: form.name)
@needs("aarch64")
def test_products_of_two_rows_are_exact(form: DotForm, together: bool) -> None:
    """Their sums, put in rows; numbers of the second row lie behind those of the first, or behind all of them."""
    lanes, q, steps = 8, form.depth, 3
    rng = np.random.default_rng(0)
    if form.data == "bfloat16":
        x, w = (rng.uniform(-1, 1, size).astype("bfloat16") for size in ((steps, 2, q), (steps, lanes, q)))
    else:
        x = rng.choice(np.array([0, 1, 127, 128, 255], np.uint8), (steps, 2, q))
        w = rng.choice(np.array([-128, -127, -1, 0, 1, 127], np.int8), (steps, lanes, q))
        x[0, 1], w[0, 0], w[0, 1] = 255, -128, 127
    rows = x if together else np.ascontiguousarray(x.transpose(1, 0, 2)).reshape(2, steps * q)
    a, b = te.placeholder(rows.shape, form.data, name="x"), te.placeholder(w.shape, form.weight, name="w")
    k, inner = te.reduce_axis((0, steps), "k"), te.reduce_axis((0, q), "q")

    def product(row: Any, lane: Any) -> Any:
        number = a[k, row, inner] if together else a[row, k * q + inner]
        return te.sum(dots.multiplied(number, b[k, lane, inner], form), axis=[k, inner])

    sch = s_tir.Schedule(from_te(a, b, te.compute((2, lanes), product, name="out")))
    block = sch.get_sblock("out")
    copy = sch.cache_write(block, 0, "global")
    row, lane, outer, within = sch.get_loops(block)
    sch.reorder(outer, row, lane, within)
    sch.decompose_reduction(block, outer)
    apart(sch, copy)
    use_pairs(sch, row, form, N2, together)
    result = run_emulated([Kernel(sch.mod["main"], [rows, w])], N2)[0]
    wide, rtol = (np.float64, 1e-5) if form.data == "bfloat16" else (np.int64, 0.0)
    expected = np.einsum("krq,kbq->rb", x.astype(wide), w.astype(wide))
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=rtol)
