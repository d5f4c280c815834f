"""The rewrite shared by depthwise convolution and pooling: padding goes where the knob says."""

from __future__ import annotations

import pytest
from tvm import s_tir

from schedules.config import Config
from schedules.target import Target
from schedules.templates.common.structure import find_anchor
from schedules.templates.cpu.window_tiles import tile_windows
from tests.schedules_tests.cases import CASES

TARGET = Target("llvm", isa="avx2", threads=2)
FUNC = next(case.func for case in CASES if case.name == "pool_max")


@pytest.mark.parametrize(("pad", "parallel"), [(0, 2), (1, 1)])
def test_padding_is_a_parallel_loop_of_its_own_or_part_of_each_job(pad: int, parallel: int) -> None:
    sch, anchor = s_tir.Schedule(FUNC), find_anchor(FUNC, "pool")
    assert anchor is not None
    tile_windows(sch, anchor, Config("pool/1", (("tw", 5), ("rows", 1), ("pad", pad))), ("kw",), TARGET)
    assert str(sch.mod.script()).count("T.parallel(") == parallel
