"""Tables of a byte's functions against NumPy's indexing, in vectors of every length."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import s_tir, te

from autotune.host.machine import host_target
from schedules.lower import tvm_target
from schedules.target import Target
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions.byte_lookup import FEATURE, LANES, SIZE, looked_up
from schedules.templates.instructions.llvm_target import features_of
from tests.schedules_tests.programs import from_te

COUNT = 4 * SIZE
HERE = host_target(1)
PLAIN = Target(kind="llvm", isa="generic")


@pytest.mark.parametrize("target", [HERE, PLAIN], ids=["here", "generic"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("lanes", [1, 8, *LANES])
def test_bytes_are_those_of_the_table(lanes: int, dtype: str, target: Target) -> None:
    x, table = te.placeholder((COUNT,), dtype, name="x"), te.placeholder((SIZE,), "uint8", name="t")
    sch = s_tir.Schedule(from_te(x, table, looked_up(x, table)))
    _, lane = sch.split(sch.get_loops(sch.get_sblock("table"))[0], [None, lanes])
    sch.vectorize(lane)
    module = compiled(sch.mod["main"], "main", tvm_target(target))
    rng = np.random.default_rng(0)
    values, bits = (
        rng.integers(0, 256, SIZE).astype(np.uint8),
        rng.permutation(np.arange(COUNT) % SIZE).astype(np.uint8),
    )
    out = tvm.runtime.tensor(np.zeros(COUNT, np.uint8))
    module(tvm.runtime.tensor(bits.view(dtype)), tvm.runtime.tensor(values), out)
    np.testing.assert_array_equal(out.numpy(), values[bits])
    permuted = "vpermi2b" in str(module.mod.inspect_source("asm")) or "vpermt2b" in str(
        module.mod.inspect_source("asm")
    )
    assert permuted == (lanes in LANES and FEATURE in features_of(target))
