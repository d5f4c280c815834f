"""Bindings of a model without caches, as onnxruntime's; those of decoders are in test_generation_executor.py."""

import numpy as np
import pytest
from onnxruntime import OrtValue

from autotune.runtime.io_binding import IOBinding
from schedules.vocabulary.errors import UsageError


def binding():
    return IOBinding(["x", "y"], ["sum", "product"], None)


def test_inputs_are_kept_by_name_until_they_are_cleared():
    bound = binding()
    bound.bind_cpu_input("x", np.ones(2))
    with pytest.raises(UsageError, match=r"input 'y' is not bound; call bind_cpu_input\('y', array\)"):
        bound.feed()
    bound.bind_cpu_input("y", np.zeros(2))
    assert list(bound.feed()) == ["x", "y"]
    bound.clear_binding_inputs()
    with pytest.raises(UsageError, match="input 'x' is not bound"):
        bound.feed()


def test_outputs_go_where_they_are_bound():
    bound, own = binding(), np.zeros(3)
    bound.bind_output("product", array=own)
    bound.keep({"sum": np.ones(3), "product": np.full(3, 2.0)})
    assert [array is own for array in bound.get_outputs()] == [True]
    assert own.tolist() == [2, 2, 2]
    bound.clear_binding_outputs()
    bound.keep({"sum": np.ones(3), "product": np.zeros(3)})
    assert len(bound.copy_outputs_to_cpu()) == 2


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.float16])
def test_memory_is_bound_as_onnxruntime_binds_it(dtype):
    bound, source = binding(), np.arange(6).reshape(2, 3).astype(dtype)
    bound.bind_input("x", "cpu", 0, dtype, source.shape, source.ctypes.data)
    value = OrtValue.ortvalue_from_numpy(source)
    bound.bind_ortvalue_input("y", value)
    del value  # the binding keeps it
    target, into = np.zeros((2, 3), dtype), OrtValue.ortvalue_from_numpy(np.zeros((2, 3), dtype))
    bound.bind_output("sum", "cpu", 0, dtype, [2, 3], target.ctypes.data)
    bound.bind_ortvalue_output("product", into)
    bound.synchronize_inputs()
    x, y = bound.feed().values()
    assert (x.dtype, y.dtype) == (dtype, dtype)
    assert np.array_equal(x, source)
    assert np.array_equal(y, source)
    bound.keep({"sum": x, "product": y})
    bound.synchronize_outputs()
    assert np.array_equal(target, source)
    assert np.array_equal(into.numpy(), source)


def test_what_is_written_later_counts():
    bound, source = binding(), np.zeros(2, np.float32)
    value = OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32))
    bound.bind_ortvalue_input("x", value)
    bound.bind_input("y", "cpu", 0, 1, (2,), source.ctypes.data)
    value.update_inplace(np.array([1, 2], np.float32))
    source[:] = 3
    assert [array.tolist() for array in bound.feed().values()] == [[1, 2], [3, 3]]
    bound.bind_input("y", "cpu", 0, 1, (0, 4), 0)
    assert bound.feed()["y"].shape == (0, 4)


def test_an_output_without_memory_is_the_session_s():
    bound = binding()
    bound.bind_output("sum", "cpu", 0)
    bound.keep({"sum": np.ones(2), "product": np.zeros(2)})
    assert [array.tolist() for array in bound.get_outputs()] == [[1, 1]]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda b: b.bind_cpu_input("z", np.ones(1)), "no input 'z'"),
        (lambda b: b.bind_output("summ"), "no output 'summ'"),
        (lambda b: b.bind_output("sum", "cuda"), "outputs are in the CPU's memory"),
        (lambda b: b.bind_output("sum", array=np.broadcast_to(1.0, 3)), "array for output 'sum' is read-only"),
        (lambda b: b.bind_output("sum", array=0), "array for output 'sum' is of type int"),
        (lambda b: b.bind_input("x", "cuda", 0, np.float32, [1], 64), "input 'x' is in the memory of 'cuda'; copy it"),
        (lambda b: b.bind_input("x", "cpu", 0, object, [1], 64), "input 'x' has type <class 'object'>"),
        (lambda b: b.bind_input("x", "cpu", 0, 8, [1], 64), "input 'x' has type 8 and shape"),
        (lambda b: b.bind_input("x", "cpu", 0, np.float32, [-1], 64), "give a type of numbers and a shape"),
        (lambda b: b.bind_output("sum", "cpu", 0, None, None, 64), "output 'sum' has type None and shape None"),
        (lambda b: b.bind_output("sum", "cpu", 0, np.float32, None, 64), "and shape None; give a type"),
        (lambda b: b.bind_ortvalue_input("x", [1.0]), "input 'x' is bound to list; give an OrtValue"),
        (lambda b: b.bind_ortvalue_output("sum", None), "output 'sum' is bound to NoneType; give an OrtValue"),
        (lambda b: b.bind_output(7), "no output 7"),
        (lambda b: b.bind_cpu_input(["x"], np.ones(1)), r"no input \['x'\]"),
        (lambda b: b.empty_cache("x"), "no cache 'x'"),
        (lambda b: b.caches, "no caches are in use yet"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(UsageError, match=said):
        call(binding())
