"""Bindings of a model without caches, as onnxruntime's; those of decoders are in test_generation_executor.py."""

import numpy as np
import pytest

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


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda b: b.bind_cpu_input("z", np.ones(1)), "no input 'z'"),
        (lambda b: b.bind_output("summ"), "no output 'summ'"),
        (lambda b: b.bind_output("sum", "cuda"), "outputs are in the CPU's memory"),
        (lambda b: b.bind_output("sum", array=np.broadcast_to(1.0, 3)), "array for output 'sum' is read-only"),
        (lambda b: b.bind_output("sum", "cpu", 0), "array for output 'sum' is of type int"),
        (lambda b: b.bind_output(7), "no output 7"),
        (lambda b: b.bind_cpu_input(["x"], np.ones(1)), r"no input \['x'\]"),
        (lambda b: b.empty_cache("x"), "no cache 'x'"),
        (lambda b: b.caches, "no caches are in use yet"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(UsageError, match=said):
        call(binding())
