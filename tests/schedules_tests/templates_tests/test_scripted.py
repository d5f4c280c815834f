"""TVMScript without a look at the callers: the same functions as TVM's decorator makes."""

import inspect

import tvm
from tvm.script import tirx as T  # noqa: N812

from schedules.templates import scripted


def test_a_function_is_what_tvm_s_decorator_makes_of_it():
    def ours(size):
        @scripted.prim_func(s_tir=True)
        def kernel(x: T.Buffer((size,), "float32"), out: T.Buffer((size,), "float32")):
            for i in range(size):
                with T.sblock("double"):
                    k = T.axis.spatial(size, i)
                    out[k] = x[k] * 2.0

        return kernel

    def theirs(size):
        @T.prim_func(s_tir=True)
        def kernel(x: T.Buffer((size,), "float32"), out: T.Buffer((size,), "float32")):
            for i in range(size):
                with T.sblock("double"):
                    k = T.axis.spatial(size, i)
                    out[k] = x[k] * 2.0

        return kernel

    tvm.ir.assert_structural_equal(ours(4), theirs(4))
    assert ours(4).params[0].ty.shape[0] == 4
    assert ours(5).params[0].ty.shape[0] == 5


def test_the_stack_is_not_read(monkeypatch):
    monkeypatch.setattr(inspect, "stack", None)

    @scripted.prim_func(s_tir=True)
    def kernel(x: T.Buffer((4,), "float32")):
        x[0] = 1.0

    assert isinstance(kernel, tvm.tirx.PrimFunc)
