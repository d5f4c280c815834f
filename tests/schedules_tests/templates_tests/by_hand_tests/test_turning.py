"""A square of numbers is turned."""

import numpy as np
import tvm
from tvm.script import tirx as T  # noqa: N812  # the name that TVM's script is written with

from autotune.host.machine import host_target
from schedules.lower import tvm_target
from schedules.templates import scripted
from schedules.templates.by_hand.attention_shape import LANES
from schedules.templates.by_hand.turning import turn
from schedules.templates.cpu.passes import compiled


@scripted.prim_func(s_tir=True)
def turned(x: T.Buffer((LANES, LANES), "float32"), y: T.Buffer((LANES, LANES), "float32")):
    square = T.alloc_buffer((LANES, LANES), "float32", scope="local")
    other = T.alloc_buffer((LANES, LANES), "float32", scope="local")
    for r in T.unroll(LANES):
        for u in T.vectorized(LANES):
            square[r, u] = x[r, u]
    turn(square, other)
    for r in T.unroll(LANES):
        for u in T.vectorized(LANES):
            y[r, u] = square[r, u]


def test_rows_become_columns():
    numbers = np.arange(LANES * LANES, dtype=np.float32).reshape(LANES, LANES)
    result = tvm.runtime.tensor(np.zeros_like(numbers))
    compiled(turned, "turned", tvm_target(host_target(1))).mod["turned"](tvm.runtime.tensor(numbers), result)
    np.testing.assert_array_equal(result.numpy(), numbers.T)
