"""What every decision gained, from a made-up history."""

import pytest

from autotune.report.decisions import curve, curve_in_turn, decisions, value_at
from autotune.report.facts import read_facts


def test_the_curve_starts_untuned_and_ends_at_the_best(told):
    facts = read_facts(told)
    points = curve(facts)
    assert points[0][1] > 10 * points[-1][1]
    assert points[-1][1] == pytest.approx(facts.kernels_s)
    assert [t for t, _ in points] == sorted(t for t, _ in points)
    values = [value for _, value in points]
    assert values == sorted(values, reverse=True)


def test_dealt_in_turn_the_same_trials_end_the_same(told):
    facts = read_facts(told)
    assert curve_in_turn(facts)[-1][1] == pytest.approx(curve(facts)[-1][1])


def test_a_step_curve_keeps_its_value():
    points = [(0.0, 3.0), (1.0, 2.0), (2.0, 1.0)]
    assert [value_at(points, t) for t in (-1.0, 0.5, 1.0, 9.0)] == [3.0, 3.0, 2.0, 1.0]


def test_every_decision_says_what_would_be_without_it(told):
    facts = read_facts(told)
    by_name = {decision.name: decision for decision in decisions(facts)}
    assert set(by_name) == {"Templates, layouts and search", "Search", "Algorithm", "Allocation", "Placement"}
    for name in ("Templates, layouts and search", "Search", "Algorithm"):
        assert by_name[name].without_s > by_name[name].with_s == facts.kernels_s
    first, second = (story.best_s for story in facts.runs[0].tasks)
    gained = by_name["Algorithm"].without_s - facts.kernels_s
    assert gained == pytest.approx(facts.runs[0].tasks[0].weight * first)
    assert second > 0
