"""What callers feed is checked: names, shapes and types, and what is wrong is said in one line."""

import numpy as np
import pytest

from autotune.interface import OpenSpec, TensorSpec
from autotune.runtime.inputs import InputCheck, shape_text
from schedules.vocabulary.errors import UsageError

CLOSED = InputCheck([TensorSpec("x", (2, 3), "float32"), TensorSpec("scale", (), "int64")])
OPEN = InputCheck([OpenSpec("rows", ("batch", 24), "float32"), OpenSpec("mask", (4,), "bool")])

TIED = InputCheck([OpenSpec("a", ("batch", "time"), "float32"), OpenSpec("b", ("batch", "time"), "float32")])
LOOSE = InputCheck([OpenSpec("a", ("?", 3), "float32"), OpenSpec("b", ("?",), "float32")])

X, SCALE = np.ones((2, 3), np.float32), np.array(2)
MASK = np.zeros(4, bool)


def rows(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def test_arrays_come_in_the_order_of_the_inputs_and_are_not_copied():
    arrays = CLOSED.arrays({"scale": SCALE, "x": X})
    assert arrays[0] is X
    assert arrays[1] is SCALE


def test_what_is_no_array_becomes_one():
    arrays = CLOSED.arrays({"x": X, "scale": 2})
    assert (arrays[1].shape, arrays[1].dtype) == ((), np.int64)


def test_open_sizes_take_any_size():
    for shape in ((1, 24), (7, 24), (0, 24)):  # the executor says which sizes there are
        assert OPEN.arrays({"rows": rows(*shape), "mask": MASK})[0].shape == shape


@pytest.mark.parametrize(
    ("check", "feed", "told"),
    [
        (CLOSED, {"x": X}, r"input 'scale' is missing; give an array of shape \(\) and type int64"),
        (CLOSED, {"x": X, "scale": SCALE, "y": X}, r"no input 'y'.* its inputs are \['x', 'scale'\]"),
        (CLOSED, {"x": X, "scal": SCALE}, "no input 'scal'; did you mean 'scale'"),
        (
            CLOSED,
            {"x": X.T, "scale": SCALE},
            r"'x' has shape \(3, 2\), .* for \(2, 3\); if the model leaves that size open, use .* --input x:3x2$",
        ),
        (CLOSED, {"x": X.astype(np.float64), "scale": SCALE}, r"\(2, 3\) and type float64, .* \(2, 3\) and float32$"),
        (CLOSED, {"x": X[0], "scale": SCALE}, r"'x' has shape \(3,\), the artifact was built for \(2, 3\)$"),
        (CLOSED, {"x": X[:0], "scale": SCALE}, r"'x' has shape \(0, 3\), the artifact was built for \(2, 3\)$"),
        (OPEN, {"mask": MASK}, "give an array of shape batchx24 and type float32"),
        (OPEN, {"rows": rows(1, 24, dtype=np.int8), "mask": MASK}, "type int8, the artifact was built for batchx24"),
        (OPEN, {"rows": rows(1, 24), "mask": MASK[:3]}, r"'mask' has shape \(3,\)"),
        (OPEN, {"rows": rows(7, 25), "mask": MASK}, r"'rows' has shape \(7, 25\), .* built for batchx24$"),
        (OPEN, {"rows": rows(24), "mask": MASK}, r"'rows' has shape \(24,\), .* for batchx24$"),
        (OPEN, {"rows": np.float32(3), "mask": MASK}, r"'rows' has shape \(\), .* for batchx24$"),
        (
            TIED,
            {"a": rows(2, 5), "b": rows(3, 1)},
            r"'b' has size 3 on axis 0 and input 'a' has size 2 on axis 0;",
        ),
        (TIED, {"a": rows(2, 5), "b": rows(5, 2)}, r"both are 'batch', so give equal ones"),
        (TIED, {"a": rows(2, 5), "b": rows(2, 4)}, r"size 4 on axis 1 and input 'a' has size 5 on axis 1; .* 'time'"),
        (TIED, {"a": [[1, 2], [3]], "b": rows(1, 1)}, r"input 'a' cannot be made an array \(.*\); give one of shape"),
        (TIED, None, "input_feed is of type NoneType; give a mapping of input name to array"),
        (TIED, [rows(1, 1)], "input_feed is of type list; give a mapping"),
    ],
)
def test_wrong_feeds_are_told(check, feed, told):
    with pytest.raises(UsageError, match=told) as caught:
        check.arrays(feed)
    assert "\n" not in str(caught.value)


def test_the_option_for_another_shape_is_quoted_and_the_line_short():
    check = InputCheck([TensorSpec("input ids", (1, 3, 224, 224), "float32")])
    with pytest.raises(UsageError, match=r"--input 'input ids:4x3x224x224'$") as caught:
        check.arrays({"input ids": rows(4, 3, 224, 224)})
    assert len(str(caught.value).split()) <= 35


def test_known_sizes_next_to_an_open_batch_may_be_open_too():
    specs = [OpenSpec("image", ("batch", 3, 224, 224), "float32")]
    image = np.zeros((8, 3, 128, 128), np.float32)
    option = (
        r"built for batchx3x224x224; if the model leaves that size open, use 'tune run' with --input image:8x3x128x128"
    )
    with pytest.raises(UsageError, match=option):
        InputCheck(specs, one_set=True).arrays({"image": image})
    with pytest.raises(UsageError, match=r"built for batchx3x224x224$"):
        InputCheck(specs).arrays({"image": image})


def test_the_sizes_of_values_inside_a_model_are_no_option():
    check = InputCheck([TensorSpec("x", (2, 3), "float32")], inner=True)
    with pytest.raises(UsageError, match=r"was built for \(2, 3\)$"):
        check.arrays({"x": X.T})


def test_sizes_that_nothing_is_known_of_may_differ():
    assert len(LOOSE.arrays({"a": rows(2, 3), "b": rows(5)})) == 2


def test_shapes_are_written_as_the_option_takes_them():
    assert shape_text((1, 3, 224, 224)) == "1x3x224x224"
    assert shape_text(()) == "scalar"
