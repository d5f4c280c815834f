"""TVMScript without a look at the callers: the same functions as TVM's decorator makes."""

import inspect
import sys

import tvm
from tvm.script import tirx as T  # noqa: N812

from schedules.templates import scripted

script = scripted  # whose decorator is used below: the parser looks it up among the module's names


def doubled(size):
    @script.prim_func(s_tir=True)
    def kernel(x: T.Buffer((size,), "float32"), out: T.Buffer((size,), "float32")):
        for i in range(size):
            with T.sblock("double"):
                k = T.axis.spatial(size, i)
                out[k] = x[k] * 2.0

    return kernel


def test_a_function_is_what_tvm_s_decorator_makes_of_it(monkeypatch):
    ours, longer = doubled(4), doubled(5)
    monkeypatch.setattr(sys.modules[__name__], "script", T)
    tvm.ir.assert_structural_equal(ours, doubled(4))
    assert longer.params[0].ty.shape[0] == 5


def test_the_stack_is_not_read(monkeypatch):
    monkeypatch.setattr(inspect, "stack", None)

    @scripted.prim_func(s_tir=True)
    def kernel(x: T.Buffer((4,), "float32")):
        x[0] = 1.0

    assert isinstance(kernel, tvm.tirx.PrimFunc)
