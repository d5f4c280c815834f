"""Operators of the host against what ONNX defines."""

import numpy as np
import pytest

from autotune.contrib.strings.string_operators import STRING_OPERATORS


def strings(*values):
    return np.array(values, object)


def run(kind, *inputs, **attributes):
    return STRING_OPERATORS[kind](inputs, attributes)


def test_strings_are_compared_joined_and_matched():
    assert run("Equal", strings("a", "b"), strings("a"))[0].tolist() == [True, False]
    assert run("StringConcat", strings("a", "b"), strings("x"))[0].tolist() == ["ax", "bx"]
    assert run("RegexFullMatch", strings("ab", "abc"), pattern="a.")[0].tolist() == [True, False]


def test_what_is_left_without_stop_words_is_one_string_at_least():
    left = run("StringNormalizer", strings("A", "b"), stopwords=["a"], case_change_action="UPPER")
    assert left[0].tolist() == ["B"]
    left = run("StringNormalizer", strings("A", "b"), stopwords=["a", "b"], is_case_sensitive=0)
    assert left[0].tolist() == [""]
    assert run("StringNormalizer", strings("A"), stopwords=["a"], is_case_sensitive=1)[0].tolist() == ["A"]


def test_parts_are_filled_up():
    parts, counts = run("StringSplit", strings("a-b", "", "c"), delimiter="-")
    assert parts.tolist() == [["a", "b"], ["", ""], ["c", ""]]
    assert counts.tolist() == [2, 0, 1]


def test_labels_have_values_and_a_default():
    table = {"keys": ["a", "b"], "values": [3, 4], "default": -1, "dtype": "int64"}
    assert run("LabelEncoder", strings("b", "z"), **table)[0].tolist() == [4, -1]
    nan = {"keys": [float("nan")], "values": ["no"], "default": "yes", "dtype": "object"}
    assert run("LabelEncoder", np.array([np.nan, 1.0]), **nan)[0].tolist() == ["no", "yes"]


def test_a_string_that_is_no_category_is_zeros_or_refused():
    assert run("OneHotEncoder", strings("b", "z"), categories=["a", "b"])[0].tolist() == [[0, 1], [0, 0]]
    with pytest.raises(ValueError, match="'z' is no category"):
        run("OneHotEncoder", strings("z"), categories=["a"], zeros=0)
