"""``--input`` with several shapes: which sets it stands for."""

import pytest

from autotune.importer.onnx_model.shape_sets import range_sizes, shape_sets
from schedules.vocabulary.errors import UsageError


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((), ()),
        (("x:1x3",), ({"x": (1, 3)},)),
        (("x:1x3", "y:2"), ({"x": (1, 3), "y": (2,)},)),
        (("a b{1,2}:0:{1,2}",), ({"a b{1,2}:0": (1,)}, {"a b{1,2}:0": (2,)})),
        (("x:1x8", "x:4x8"), ({"x": (1, 8)}, {"x": (4, 8)})),
        (("x:1x8", "x:1x8"), ({"x": (1, 8)},)),
        (("x:{1,4}x8", "mask:8"), ({"x": (1, 8), "mask": (8,)}, {"x": (4, 8), "mask": (8,)})),
        (("a:{1,2}x3", "b:{1,2}"), ({"a": (1, 3), "b": (1,)}, {"a": (2, 3), "b": (2,)})),
    ],
)
def test_sets(texts, expected):
    assert shape_sets(texts) == expected


def test_sizes_written_alike_move_together_and_others_are_combined():
    assert [shapes["x"] for shapes in shape_sets(["x:1x3x{8,16}x{8,16}"])] == [(1, 3, 8, 8), (1, 3, 16, 16)]
    assert [shapes["x"] for shapes in shape_sets(["x:{1,2}x{8,16}"])] == [(1, 8), (1, 16), (2, 8), (2, 16)]


@pytest.mark.parametrize(
    ("low", "high", "sizes"),
    [(224, 512, [224, 352, 512]), (1, 8, [1, 2, 4, 8]), (1, 64, [1, 4, 16, 64]), (5, 5, [5]), (3, 4, [3, 4])],
)
def test_range_holds_its_ends_and_sizes_between(low, high, sizes):
    assert range_sizes(low, high) == sizes


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["x:{8..2}"], "ends before it begins"),
        (["x:{a..b}"], "is not a range or a list"),
        (["x:{}"], "is not a range or a list"),
        (["x:{0,2}"], "is not a range or a list"),
        (["x:{1..2"], "is not NAME:DIMS"),
        (["x:1", "x:2", "y:1", "y:2", "y:3"], "different numbers of shapes .x has 2, y has 3."),
        (["x:{1,2,3,4}x{5,6,7,8}"], "16 sets of shapes, more than 12"),
    ],
)
def test_refuses(texts, message):
    with pytest.raises(UsageError, match=message) as caught:
        shape_sets(texts)
    assert "\n" not in str(caught.value)
