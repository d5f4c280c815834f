"""Libraries are loaded as they are on disk, and threads are configured without moving the caller."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import tvm
from tvm import te

from autotune.backends.cpu.libraries import open_library, set_threads


def save(path: Path, factor: float) -> None:
    data = te.placeholder((4,), name="data")
    out = te.compute((4,), lambda i: data[i] * tvm.tirx.const(factor, "float32"), name="out")
    tvm.compile(te.create_prim_func([data, out]), target="llvm").export_library(str(path))


def first(library: tvm.runtime.Module) -> float:
    data, out = (tvm.runtime.tensor([value] * 4) for value in (1.0, 0.0))
    data, out = (tvm.runtime.tensor(tensor.numpy().astype("float32")) for tensor in (data, out))
    library["main"](data, out)
    return float(out.numpy()[0])


def test_a_library_that_was_replaced_is_loaded_anew(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    save(path, 2.0)
    old = open_library(path)
    assert first(old) == 2.0
    path.unlink()
    save(path, 3.0)
    assert first(open_library(path)) == 3.0
    assert first(old) == 2.0


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no CPU affinity")
def test_the_caller_keeps_its_cores() -> None:
    before = os.sched_getaffinity(0)
    set_threads(1)
    assert os.sched_getaffinity(0) == before
