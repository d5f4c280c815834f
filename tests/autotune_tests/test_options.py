"""Precisions are read as they are written, and refused in one line."""

import pytest

from autotune.options import FP32, Generation, Options, Precision
from schedules.vocabulary.errors import UsageError


@pytest.mark.parametrize(
    ("text", "products"),
    [
        ("fp32", frozenset()),
        ("bf16", None),
        ("bf16:3,0", frozenset({0, 3})),
        ("fp16", None),
        ("fp16:7", frozenset({7})),
        ("tf32", None),
        ("tf32:1", frozenset({1})),
    ],
)
def test_a_precision_is_read_as_it_is_written(text, products):
    precision = Precision.parse(text)
    assert precision.products == products
    assert Precision.parse(str(precision)) == precision


def test_products_are_asked_by_number():
    assert 5 in Precision(None)
    assert 5 not in FP32
    assert (3 in Precision.parse("bf16:3"), 4 in Precision.parse("bf16:3")) == (True, False)


@pytest.mark.parametrize("text", ["", "bf61", "tf23", "bf16:a", "bf16:1,,2", "bf16:-1", "fp32:0"])
def test_other_precisions_are_refused(text):
    with pytest.raises(UsageError, match="fp32, bf16"):
        Options(precision=text)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"seed": -1}, "--seed -1: must be at least 0"),
        ({"seed": 1.5}, "--seed 1.5: must be a whole number"),
        ({"trials": "9"}, "--trials '9': must be a whole number"),
        ({"trials": True}, "--trials True: must be a whole number"),
        ({"threads": 1.5}, "--threads 1.5: must be a whole number"),
        ({"streams": float("nan")}, "--streams nan: must be a whole number"),
        ({"batch": 0}, "batch 0: must be at least 1"),
        ({"budget_s": float("nan")}, "--budget nans: must be a number above zero"),
        ({"budget_s": "60"}, "--budget 60s: must be a number above zero"),
        ({"import_memory": float("nan")}, "--import-memory nanB: must be a number above zero"),
        ({"until": "1%"}, "--until 1%: must be a share"),
    ],
)
def test_numbers_that_are_none_are_told(fields, said):
    with pytest.raises(UsageError, match=said):
        Options(**fields)


def test_bf16_is_for_the_cpu_alone():
    with pytest.raises(UsageError, match="--lanes cpu,cuda:0"):
        Options(precision="bf16", lanes="cpu,cuda:0")


def test_numbers_of_products_need_the_whole_model():
    with pytest.raises(UsageError, match="--fallback"):
        Options(precision="bf16:1", fallback="onnxruntime")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"positions": 0}, r"positions are \(0,\); each must be 1 or more"),
        ({"prompts": (8, 0)}, r"prompts are \(8, 0\); each must be 1 or more"),
        ({"sequences": ()}, "no number of sequences is given"),
    ],
)
def test_what_a_decoder_is_built_for_is_counted_from_one(fields, said):
    with pytest.raises(UsageError, match=said):
        Generation(**fields)


def test_a_decoder_is_built_for_this_machine_as_a_whole():
    with pytest.raises(UsageError, match="--generate does not go with --lanes cpu:2x1"):
        Options(generate=Generation(), lanes="cpu:2x1")
