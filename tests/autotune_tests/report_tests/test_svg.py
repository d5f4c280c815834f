"""Scales, ticks and numbers of drawings."""

import pytest

from autotune.report.svg import Canvas, Scale, number


def test_scales_map_ends_to_ends_and_give_round_ticks():
    scale = Scale(0.0, 10.0, 100, 200)
    assert (scale(0), scale(5), scale(10)) == (100, 150, 200)
    assert scale.ticks(5) == [0, 2, 4, 6, 8, 10]
    log = Scale(0.9, 110.0, 0, 300, log=True)
    assert log(10) == pytest.approx((log(1) + log(100)) / 2)
    assert log.ticks(4) == [1, 10, 100]
    assert Scale(1.0, 1.0, 0, 10)(1.0) == 5


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (0.01234, "0.0123"), (12.34, "12.3"), (1234.5, "1,234")])
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_text_of_others_is_escaped():
    canvas = Canvas(100, 50, "a < b")
    canvas.text(0, 10, "<script>")
    canvas.rect(0, 0, 10, 10, "bar", "1 & 2")
    drawn = canvas.render()
    assert "&lt;script&gt;" in drawn
    assert "<title>1 &amp; 2</title>" in drawn
    assert 'aria-label="a &lt; b"' in drawn


def test_a_step_keeps_its_height_until_the_next_point():
    canvas = Canvas(100, 50, "steps")
    canvas.path([(0, 10), (5, 20)], "curve", step=True)
    assert 'd="M0.0 10.0H5.0V20.0"' in canvas.render()
