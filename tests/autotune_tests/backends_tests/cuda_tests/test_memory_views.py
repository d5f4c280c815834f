"""Tensors over stretches of an array, on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

from autotune.backends.cuda.memory_views import View, copied
from autotune.host.machine import host_target
from autotune.measure.output_check import aligned
from schedules.lower import BASELINE, lower, tvm_target
from schedules.templates.cpu.passes import compiled
from tests.schedules_tests.programs import from_te


def test_a_view_begins_where_it_lies() -> None:
    array = aligned((64,), np.dtype(np.float32))
    array[:] = np.arange(64)
    view = View(array.ctypes.data + 64, (2, 3), "float32", tvm.cpu(0))
    assert view.tensor.numpy().tolist() == [[16, 17, 18], [19, 20, 21]]
    array[16] = -1
    assert view.tensor.numpy()[0, 0] == -1


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "float16", "bfloat16", "int64"])
def test_types(dtype: str) -> None:
    array = aligned((64,), np.dtype(np.uint8))
    assert str(View(array.ctypes.data, (2, 2), dtype, tvm.cpu(0)).tensor.dtype) == dtype


def test_kernels_take_it() -> None:
    x = te.placeholder((16,), name="x")
    func = from_te(x, te.compute((16,), lambda i: x[i] + 1.0, name="more"))
    target = host_target()
    kernel = compiled(lower(func, BASELINE, target).mod["main"], "main", tvm_target(target))
    arena = tvm.runtime.tensor(np.zeros(64, np.float32))
    read, written = (View(arena.data_ptr() + at, (16,), "float32", tvm.cpu(0)) for at in (0, 64))
    kernel(read.tensor, written.tensor)
    assert arena.numpy().tolist() == [0.0] * 16 + [1.0] * 16 + [0.0] * 32


def test_kernels_of_short_floats_take_words() -> None:
    """Weights and inputs of measured kernels are words; a kernel refuses tensors of them."""
    x = te.placeholder((16,), "bfloat16", name="x")
    twice = te.compute((16,), lambda i: (x[i].astype("float32") * 2.0).astype("bfloat16"), name="y")
    kernel = tvm.compile(from_te(x, twice), target="llvm")["main"]
    words = np.arange(16, dtype=np.float32).astype("bfloat16").view(np.uint16)
    plain = tvm.runtime.tensor(words)
    output = copied(np.zeros(16, np.uint16), "bfloat16", tvm.cpu(0))
    with pytest.raises(TypeError, match="expected bfloat16"):
        kernel(plain, output)
    for argument in (copied(words, "bfloat16", tvm.cpu(0)), plain._create_view((16,), "bfloat16")):
        kernel(argument, output)
        assert output.numpy().astype(np.float32).tolist() == [2.0 * number for number in range(16)]
