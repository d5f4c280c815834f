"""Nothing that moves a cursor, turns the direction of writing or adds a line is shown as it is."""

import pytest

from autotune.report.plain_text import day, escaped, escaped_lines


def test_printable_text_stays():
    assert escaped("µs × é 漢字 [link=x] \\x1b") == "µs × é 漢字 [link=x] \\x1b"
    assert escaped("a\tb") == "a\tb"


ODD = "\x1b\x07\n\r\x9b\u202e\u2066\u2028\ud800\x00\x7f"


@pytest.mark.parametrize("char", ODD)
def test_all_else_is_escaped(char):
    assert escaped(f"a{char}b").isprintable()
    assert escaped(escaped(f"a{char}b")) == escaped(f"a{char}b")
    escaped(char).encode("utf-8")


def test_lines_stay_lines():
    assert escaped_lines("a\x1b\nb") == "a\\x1b\nb"


def test_a_time_in_no_year_is_a_question_mark():
    assert day(1e300) == day(float("nan")) == day(float("inf")) == day(-1e300) == "?"
    assert day(0.0).startswith(("1969", "1970"))
