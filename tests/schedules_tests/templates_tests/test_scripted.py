"""TVMScript without a look at the callers: the same functions as TVM's decorator makes."""

import inspect
import sys

import pytest
import tvm
import tvm_ffi
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


def doubling(factor):
    """Each number times ``factor``, in one function of lanes that reads another."""

    @script.inline
    def times(to, of, k):
        to[k] = of[k] * T.float32(factor)

    @script.inline
    def lanes(to, of, count):
        for k in range(count):
            times(to, of, k)

    @scripted.prim_func(s_tir=True)
    def kernel(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32"), out: T.Buffer((8,), "float32")):
        lanes(out, x, 8)
        lanes(out, y, 4)

    return kernel


def test_a_function_is_written_anew_for_each_call_as_tvm_does(monkeypatch):
    ours, other = doubling(2), doubling(3)
    assert not tvm_ffi.structural_equal(ours, other)
    monkeypatch.setattr(sys.modules[__name__], "script", T)
    tvm.ir.assert_structural_equal(ours, doubling(2))


def test_the_sources_of_callers_are_not_looked_for(monkeypatch):
    monkeypatch.setattr(inspect, "getouterframes", None)
    assert isinstance(doubling(2), tvm.tirx.PrimFunc)


def test_outside_of_scripts_there_is_nothing_to_write():
    @scripted.inline
    def first(x):
        x[0] = 1.0

    with pytest.raises(RuntimeError, match="first is called outside of a script"):
        first(None)
