"""Register tiles stay in registers: what one holds is counted right, its loops in the order that holds least."""

import re

import numpy as np
import pytest
from tvm import s_tir, te

from schedules.lower import claim, lower, tvm_target
from schedules.target import Target
from schedules.templates.common.structure import axis_loops, divisors, find_anchor
from schedules.templates.common.windows import Window
from schedules.templates.cpu.conv2d import conv2d
from schedules.templates.cpu.passes import compiled
from schedules.vocabulary.errors import ScheduleError
from tests.schedules_tests.programs import conv_case, from_te

WIDE = Target(kind="llvm", isa="avx512", threads=1, mcpu="skylake-avx512")


def spills(func, chosen):
    """Vectors that the machine code stores to or loads from the stack, in its longest loop."""
    code = compiled(lower(func, chosen, WIDE).mod["main"], "main", tvm_target(WIDE)).mod.inspect_source("asm")
    return len(re.findall(r"vmov[au]ps.*\(%rsp\).*zmm|vmov[au]ps.*zmm.*\(%rsp\)", code)), code.count("vfmadd")


@pytest.mark.parametrize(
    ("to", "th", "tw"), [(2, 1, 14), (2, 7, 2), (2, 2, 7), (4, 1, 4), (1, 7, 4), (1, 1, 28), (8, 1, 2)]
)
@pytest.mark.parametrize("depth", [4, 20])
def test_no_tile_of_the_space_spills(to, th, tw, depth):
    func = conv_case("c", (1, 20, 28, 28, 16), (8, 20, 1, 1, 16, 16)).func
    wanted = {"algorithm": 0, "to": to, "th": th, "tw": tw, "unroll": 4, "depth": depth, "rows": 7 if th == 7 else 14}
    space = claim(func, WIDE).space
    chosen = next(c for c in map(space.config, space.rows) if all(c.integer(k) == v for k, v in wanted.items()))
    spilled, multiplied = spills(func, chosen)
    assert multiplied >= 4 * to * th * tw
    # The epilogue's biases may be kept on the stack; sums and operands of the loop are not.
    assert spilled <= 2 * to


def test_divisors_are_all_up_to_the_limit():
    assert divisors(12) == (1, 2, 3, 4, 6, 12)
    assert divisors(12, 5) == (1, 2, 3, 4)
    assert divisors(5, 12) == (1, 5)


def test_a_block_whose_loops_are_fused_has_no_loop_per_axis():
    sch = s_tir.Schedule(conv_case("c", (1, 2, 4, 4, 16), (2, 2, 1, 1, 16, 16)).func)
    block = sch.get_sblock("conv2d")
    spatial, reduced = axis_loops(sch, block)
    assert (len(spatial), len(reduced)) == (5, 4)
    sch.fuse(*spatial[:2])
    with pytest.raises(ScheduleError, match="8 loops for 9 axes"):
        axis_loops(sch, block)


def test_a_residual_that_is_converted_before_the_product_belongs_to_what_follows():
    data = te.placeholder((1, 2, 8, 8, 16), "uint8", name="data")
    other = te.placeholder((1, 2, 8, 8, 16), "uint8", name="other")
    weight = te.placeholder((2, 2, 3, 3, 4, 16, 4), "int8", name="weight")
    residual = te.compute(other.shape, lambda *i: other[i].astype("float32"), name="residual")
    summed = conv2d(data, weight, Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)))
    out = te.compute(summed.shape, lambda *i: summed[i].astype("float32") + residual[i], name="out")
    func = from_te(data, weight, other, out)
    anchor = find_anchor(func, "conv2d")
    assert anchor.prologue == ("pad",)
    assert anchor.epilogue == ("residual", "out")
    space = claim(func, WIDE).space
    for chosen in space.sample(4, np.random.default_rng(0)):
        assert lower(func, chosen, WIDE)
