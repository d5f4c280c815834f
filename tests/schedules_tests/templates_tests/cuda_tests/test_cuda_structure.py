"""What GPU templates share: names that C accepts, inlining, thread bindings."""

from __future__ import annotations

import re

from tvm import s_tir, te

from schedules.templates.cuda.cuda_structure import bind_flat, inline_all, named
from tests.schedules_tests.programs import from_te


def chain(name: str) -> object:
    x = te.placeholder((6, 8), name=name)
    y = te.compute((6, 8), lambda i, j: x[i, j] + 1.0, name="compute")
    return from_te(x, te.compute((6, 8), lambda i, j: y[i, j] * 2.0, name="compute"))


def test_buffers_get_distinct_names_of_c() -> None:
    func = named(chain("gpu_0/data_0"))
    names = [str(buffer.name) for buffer in (*func.params, *func.body.block.alloc_buffers)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z_]\w*", name) for name in names)


def test_stages_without_a_reduction_are_inlined_and_bound_to_threads() -> None:
    sch = s_tir.Schedule(chain("x"))
    (left,) = inline_all(sch)
    block, thread, inner = bind_flat(sch, sch.get_loops(sch.get_sblock(left)), threads=8, vector=2)
    assert [int(sch.get(loop).extent) for loop in (block, thread, inner)] == [3, 8, 2]
