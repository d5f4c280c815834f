"""Programs on TVM's virtual machine."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.relax import TensorType

from autotune.backends.cpu.vm_executor import VmExecutor
from autotune.host.pages import paged


def executor() -> VmExecutor:
    builder = relax.BlockBuilder()
    x = relax.Var("x", TensorType((2, 3), "float32"))
    w = relax.Var("w", TensorType((2, 3), "float32"))
    with builder.function("main", [x, w]):
        total = builder.emit(relax.op.add(x, w))
        double = builder.emit(relax.op.multiply(total, total))
        builder.emit_func_output(relax.Tuple([total, double]))
    module = relax.transform.LegalizeOps()(builder.get())
    weight = paged(24).view(np.float32).reshape(2, 3)
    weight[...] = 2.0
    return VmExecutor(tvm.compile(module, target="llvm").mod, [weight], 1)


def test_every_output_is_returned_in_order() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    total, double = executor().run([x])
    np.testing.assert_array_equal(total, x + 2)
    np.testing.assert_array_equal(double, (x + 2) ** 2)


def test_it_neither_profiles_nor_has_lanes() -> None:
    vm, x = executor(), np.zeros((2, 3), np.float32)
    assert (vm.profile([x]), vm.timeline([x]), vm.lanes) == ([], [], ())
