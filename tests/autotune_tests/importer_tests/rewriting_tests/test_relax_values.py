"""Facts about Relax expressions, and ``main`` built again."""

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R  # noqa: N812  # the name that TVM's script is written with
from tvm.script.parser import ir as I  # noqa: N812

from autotune.importer.rewriting.relax_values import (
    bindings_of,
    constant_of,
    operator_name,
    rebuilt_main,
    sizes_of,
    substituted,
    text_of,
    variables_read,
    without_main,
)


@I.ir_module
class Program:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):  # noqa: N805  # TVM's script has no self
        R.func_attr({"num_input": 2})
        with R.dataflow():
            total = R.add(x, y)
            twice = R.add(total, total)
            R.output(twice)
        return twice


def test_bindings_are_those_of_main_in_order():
    names = [operator_name(binding.value) for binding in bindings_of(Program)]
    assert names == ["relax.add", "relax.add"]
    assert [len(variables_read(binding.value)) for binding in bindings_of(Program)] == [2, 2]
    assert without_main(Program) == {}


def test_main_is_built_again_with_other_bindings_and_more_parameters():
    builder = relax.BlockBuilder(IRModule())
    more = relax.Var("more", relax.TensorType((2, 3), "float32"))

    def make(binding, values):
        call = substituted(binding.value, values)
        return builder.emit(relax.op.multiply(call.args[0], more))

    module = rebuilt_main(Program, builder, make, [more])
    assert [operator_name(b.value) for b in bindings_of(module) if operator_name(b.value)] == ["relax.multiply"] * 2
    assert module["main"].params[-1].name == "more"
    assert int(module["main"].attrs["num_input"]) == 2


@pytest.mark.parametrize(("mode", "text"), [(b"up", "up"), ("up", "up"), (b"", "none"), (None, "none")])
def test_attributes_that_are_left_out_or_empty_have_a_default(mode, text):
    assert text_of({} if mode is None else {"mode": mode}, "mode", "none") == text


def test_constants_have_values_and_sizes():
    constant = relax.const(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert sizes_of(constant) == [2, 3]
    assert constant_of(constant).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert constant_of(Program["main"].params[0]) is None
    assert constant_of(None) is None
