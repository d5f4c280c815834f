"""Values of the program that is rebuilt, and its weights."""

import numpy as np
import pytest
from tvm import relax
from tvm.ir import GenericConst

from autotune.importer.layouts.blocked import Blocked
from autotune.importer.layouts.channels_last import ChannelsLast
from autotune.importer.layouts.tensor_layouts import INLINE_LIMIT, Value
from autotune.importer.rewriting.relax_values import shape_of


def test_equal_weights_are_one_parameter_and_small_constants_stay_in_the_program():
    layouts = Blocked(8)
    large = np.arange(INLINE_LIMIT + 1, dtype=np.float32)
    assert layouts.constant(large) is layouts.constant(large.copy())
    assert layouts.constant(large + 1) is not layouts.constant(large)
    assert len(layouts.weights) == len(layouts.parameters) == 2
    assert isinstance(layouts.constant(large[:INLINE_LIMIT]), GenericConst)


@pytest.mark.parametrize(("make", "native"), [(lambda: Blocked(8), (1, 2, 5, 6, 8)), (ChannelsLast, (1, 5, 6, 12))])
def test_a_conversion_is_emitted_once(make, native):
    layouts = make()
    image = relax.Var("x", relax.TensorType((1, 12, 5, 6), "float32"))
    value = Value((1, 12, 5, 6), plain=image)
    with layouts.builder.function("main", [image]):
        with layouts.builder.dataflow():
            converted = layouts.native(value)
            assert shape_of(converted) == native
            assert layouts.native(value) is converted
            back = layouts.plain(Value(value.shape, native=converted))
            assert shape_of(back) == value.shape
            result = layouts.builder.emit_output(back)
        layouts.builder.emit_func_output(result)


def test_a_value_is_a_matrix_until_it_is_needed_plain():
    matrix = relax.Var("m", relax.TensorType((6, 4), "float32"))
    assert Value((2, 3, 4), matrix=matrix).is_matrix
    assert not Value((2, 3, 4), matrix=matrix, plain=matrix).is_matrix
    assert shape_of(relax.Tuple([matrix])) is None
