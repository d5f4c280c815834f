"""Kernels made the short way are those that TVM makes."""

import contextlib

import pytest
from tvm import relax, te, tirx, topi
from tvm.ir import assert_structural_equal
from tvm.relax import block_builder

from autotune.importer.conversion.static_calls import static_calls


def tensor(name, *shape, dtype="float32"):
    return relax.Var(name, relax.TensorType(shape, dtype))


def scaled(x, factor, shift=0.0):
    return te.compute(x.shape, lambda *i: x[i] * factor + shift, name="scaled")


def halves(x):
    rows, columns = x.shape
    low = te.compute((rows, columns // 2), lambda i, j: x[i, j], name="low")
    return [low, te.compute((rows, columns // 2), lambda i, j: x[i, j + columns // 2], name="high")]


def module(emit, *params):
    """``main`` of ``params``, which returns what ``emit(builder)`` makes."""
    builder = relax.BlockBuilder()
    with builder.function("main", list(params)):
        with builder.dataflow():
            result = builder.emit_output(emit(builder))
        builder.emit_func_output(result)
    return builder.finalize()


X, Y = tensor("x", 2, 6), tensor("y", 1, 6)
N = tirx.Var("n", "int64")
OPEN = tensor("open", N, 6)
CASES = {
    "tensors": (lambda b: b.call_te(topi.add, X, Y), X, Y),
    "an expression": (lambda b: b.call_te(topi.add, X, relax.const([[1.0] * 6], "float32")), X),
    "a list": (lambda b: b.call_te(topi.concatenate, [X, Y], 0, primfunc_name_hint="joined"), X, Y),
    "numbers": (lambda b: b.call_te(scaled, X, 2.0, shift=tirx.const(1.5, "float32")), X),
    "a shape": (lambda b: b.call_te(topi.reshape, X, relax.ShapeExpr([3, 4])), X),
    "a tuple of sizes": (lambda b: b.call_te(topi.transpose, X, (1, 0)), X),
    "two results": (lambda b: b.call_te(halves, X), X),
    "attributes": (lambda b: b.call_te(topi.nn.relu, X, primfunc_attrs={"op_pattern": 4, "numbers": [1, 2]}), X),
    "a type": (lambda b: b.call_te(topi.nn.relu, X, ty_args=[relax.TensorType((2, 6), "float32")]), X),
    "another type": (lambda b: b.call_te(topi.cast, X, "int8"), X),
    "an open size": (lambda b: b.call_te(topi.nn.relu, OPEN), OPEN),
    "TVM's own operators": (lambda b: relax.op.nn.softmax(relax.op.add(X, Y)), X, Y),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_kernels(name):
    emit, *params = CASES[name]
    expected = relax.transform.LegalizeOps()(module(emit, *params))
    with static_calls():
        legal = relax.transform.LegalizeOps()(module(emit, *params))
    assert_structural_equal(legal, expected, map_free_vars=True)
    assert [var.name_hint for var in legal.get_global_vars()] == [var.name_hint for var in expected.get_global_vars()]


def test_sizes_that_are_numbers_go_the_short_way(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError

    monkeypatch.setattr(block_builder, "gen_call_tir_inputs", refuse)
    with static_calls():
        module(lambda b: b.call_te(topi.add, X, Y), X, Y)
        with pytest.raises(AssertionError):
            module(lambda b: b.call_te(topi.nn.relu, OPEN), OPEN)


def test_tvm_is_as_before_afterwards():
    before = block_builder.gen_call_tir_inputs
    with contextlib.suppress(ZeroDivisionError), static_calls():
        assert block_builder.gen_call_tir_inputs is not before
        raise ZeroDivisionError
    assert block_builder.gen_call_tir_inputs is before
