"""The plots of a report hold what they are about; that a browser draws them is in ``test_page``."""

from dataclasses import replace

import pytest

from autotune.report.decisions import Decision
from autotune.report.facts import read_facts
from autotune.report.plots import (
    COLOURS,
    NARROW,
    WIDE,
    colours,
    decision_plot,
    engine_plot,
    lane_plot,
    latency_plot,
    roofline_plot,
    shortened,
    timeline_plot,
)
from tests.autotune_tests.reported import BENCHED


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_plot_has_its_width_and_its_data(told, width):
    facts = read_facts(told)
    drawn = {
        "onnxruntime": latency_plot(facts, width),
        "100 GFLOPS": roofline_plot(facts, width),
        "µs</title>": timeline_plot(facts, width),
        "1.right on cpu:1": lane_plot(facts, width),
        "openvino": engine_plot(BENCHED, width),
    }
    for words, plot in drawn.items():
        assert f'<svg width="{width}"' in plot
        assert words in plot


def test_what_was_not_measured_is_not_drawn(told):
    facts = replace(read_facts(told), roofline=None, runs=(), bench=None)
    assert roofline_plot(facts, WIDE) == timeline_plot(facts, WIDE) == lane_plot(facts, WIDE) == ""
    assert engine_plot(None, WIDE) == decision_plot([], WIDE) == ""


def test_a_bar_that_is_cut_says_so():
    plot = decision_plot([Decision("Search", "the first guess", 1e-3, 1e-2)], WIDE)
    assert "×10.00" in plot
    assert "» 10 ms" in plot


def test_every_template_has_a_colour_of_the_style(told):
    facts = read_facts(told)
    by_template = colours(facts)
    assert set(by_template) == {row.task.template for row in facts.rows}
    assert max(by_template.values()) < COLOURS
    assert by_template[facts.rows[0].task.template] <= 1


def test_long_labels_are_shortened():
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"
