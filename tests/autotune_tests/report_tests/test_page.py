"""The report: its numbers, its words, and that a real browser draws it, offline, on a desk and on a phone."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from autotune.cli.main import main
from autotune.options import Options
from autotune.report.bottlenecks import explain, explain_lines, summary
from autotune.report.decisions import curve, curve_in_turn, decisions, value_at
from autotune.report.facts import read_facts, timeline
from autotune.report.page import command, render, write_report
from autotune.report.svg import Scale, number
from autotune.tuning.run_history import read_history, remember, write_history
from schedules.errors import ArtifactError
from tests.autotune_tests.reported import BENCHED, make_history
from tests.chromium import Chromium, find_browser
from tests.models import cached

MOST_BYTES = 5 * 2**20


@pytest.fixture
def told(tiny):
    return make_history(tiny.artifact)


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
    found = {each.name: each for each in decisions(facts)}
    assert set(found) == {"Templates, layouts and search", "Search", "Algorithm", "Allocation", "Placement"}
    for name in ("Templates, layouts and search", "Search", "Algorithm"):
        assert found[name].without_s > found[name].with_s == facts.kernels_s
    first, second = (story.best_s for story in facts.runs[0].tasks)
    gained = found["Algorithm"].without_s - facts.kernels_s
    assert gained == pytest.approx(facts.runs[0].tasks[0].weight * first)
    assert second > 0


def test_the_timeline_is_one_inference(told):
    spans = timeline(read_facts(told))
    assert all(row is not None for row, _, _ in spans)
    assert [start for _, start, _ in spans] == pytest.approx([2e-5 * index for index in range(len(spans))])


def test_failures_are_counted_by_kind(told):
    assert read_facts(told).failures == {"timeout": 3, "wrong_result": 1}


def test_words_name_limit_and_remedy(told):
    facts = read_facts(told)
    said = explain(facts)
    assert all(re.match(r"(arithmetic|memory|the L2 caches): ", each.limit) for each in said)
    assert all(each.advice and not each.advice.endswith(".") for each in said)
    assert "trials" in summary(facts)[0]
    assert any(line.startswith("1. ") for line in explain_lines(facts))
    assert json.dumps([each.to_data() for each in said])


def test_a_kernel_beyond_its_bound_disproves_it(told):
    (run,) = read_history(told)
    write_history(told, (replace(run, tasks=tuple(replace(story, bound_s=0.0) for story in run.tasks)),))
    facts = read_facts(told)
    disproved = [each for each in explain(facts) if each.row.tunable]
    assert disproved
    for each in disproved:
        assert each.row.bound_share is None
        assert "more than was measured" in each.limit
        assert "%" not in each.limit


def test_without_a_history_it_says_so(tiny):
    facts = read_facts(tiny.artifact)
    assert "not recorded" in summary(facts)[-1]
    page = render(facts)
    assert "<h2>Model latency over tuning time" not in page
    assert "tune bench tiny.tuned" in page


def test_the_command_to_do_it_again(told):
    facts = read_facts(told)
    assert command(facts, facts.runs[0]) == "tune run tiny.onnx --budget 60s --seed 0 --searcher adaptive"


def test_the_command_has_all_that_was_asked_for(told, tmp_path):
    facts = read_facts(told)
    asked = Options(
        inputs={"x": (1, 24), "mask": (2,)},
        until=0.01,
        isa="avx2",
        lanes="cpu:2x1",
        fallback=None,
        trials=6,
        budget_s=60,
    )
    shutil.copytree(told, tmp_path / "again.tuned")
    result = {"elapsed_s": 1.0, "reason": "", "phase_s": {}, "latency_ms": {}, "verified": None}
    remember(tmp_path / "again.tuned", replace(facts.runs[0]), result, asked, ())
    (run,) = read_history(tmp_path / "again.tuned")
    said = command(facts, run)
    for words in ("--until 1%", """--target '{"isa": "avx2"}'""", "--lanes cpu:2x1", "--input x:1x24 --input mask:2"):
        assert words in said
    fallen = replace(run, options={**run.options, "fallback": "onnxruntime", "lanes": "cpu"})
    assert "--fallback onnxruntime" in command(facts, fallen)
    assert "--lanes" not in command(facts, fallen)


def test_text_of_others_is_escaped(told):
    page = render(read_facts(told))
    assert "<expected>" not in page
    assert "&lt;expected&gt;" in page


def test_a_bench_can_be_given(tiny, tmp_path, capsys):
    make_history(tiny.artifact, bench=False)
    (tmp_path / "bench.json").write_text(json.dumps(BENCHED))
    out = tmp_path / "report.html"
    assert main(["report", str(tiny.artifact), "--out", str(out), "--bench", str(tmp_path / "bench.json")]) == 0
    assert "×1.50" in out.read_text()
    (tmp_path / "bench.json").write_text("{}")
    assert main(["report", str(tiny.artifact), "--bench", str(tmp_path / "bench.json")]) == 2
    assert "tune bench --json" in capsys.readouterr().err


def test_where_it_cannot_be_written_the_fix_is_named(told, tmp_path):
    with pytest.raises(ArtifactError, match="name another --out"):
        write_report(told, tmp_path / "nowhere" / "report.html")


SECTIONS = {"latency": 1, "roofline": 1, "decisions": 1, "timeline": 1, "lanes": 1, "engines": 1}
"""Section → plots that must be seen in it."""

SEEN = """[...document.querySelectorAll('#%s svg')].filter(svg => svg.getClientRects().length).map(svg => {
    const box = svg.getBoundingClientRect();
    return [box.left, box.right, svg.querySelectorAll('rect, path, circle').length]})"""


SMALL = """[...document.querySelectorAll('svg text')]
    .filter(text => text.closest('svg').getClientRects().length && text.getBoundingClientRect().height < 9)
    .map(text => text.textContent)"""


CROSSING = """[...document.querySelectorAll('svg')].filter(svg => svg.getClientRects().length).flatMap(svg => {
    const words = [...svg.querySelectorAll('text:not(.inside)')].map(
        each => [each.textContent, each.getBoundingClientRect()]);
    const shared = (low, high, p, q) => Math.min(p[high], q[high]) - Math.max(p[low], q[low]);
    return words.flatMap(([a, p], i) => words.slice(i + 1).filter(
        ([b, q]) => shared('left', 'right', p, q) > 1 && shared('top', 'bottom', p, q) > 4).map(([b]) => [a, b]))})"""


@pytest.fixture(scope="module")
def browser():
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium or Chrome is installed (apt-get install chromium)")
    with Chromium(program) as running:
        yield running


def check_page(browser, page, width, dark, sections):
    """It is drawn whole, offline and in silence, and can be read."""
    assert page.stat().st_size <= MOST_BYTES
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(page, width, 844, dark)
    assert browser.complaints == []
    assert {url for url in browser.requests if not url.startswith("data:")} == {page.resolve().as_uri()}
    assert browser.ask("document.documentElement.scrollWidth") <= width
    for section, count in sections.items():
        seen = browser.ask(SEEN % section)
        assert len(seen) == count, section
        for left, right, shapes in seen:
            assert 0 <= left < right <= width, section
            assert shapes >= 2, section
    assert browser.ask(SMALL) == [], "text too small to read"
    assert browser.ask(CROSSING) == [], "text on text"


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_draws_it_without_a_complaint(browser, told, tmp_path, width, dark):
    check_page(browser, write_report(told, tmp_path / "report.html"), width, dark, SECTIONS)


@pytest.mark.slow
def test_a_browser_draws_a_run_of_resnet_50(browser, tmp_path):
    out, log, page = (str(tmp_path / name) for name in ("resnet50.tuned", "log.db", "report.html"))
    few = ["--trials", "120", "--budget", "40s", "--log", log, "--quiet"]
    assert main(["run", str(cached("resnet50")), "--out", out, *few]) == 0
    assert main(["bench", out, "--model", str(cached("resnet50")), "--rounds", "3", "--quiet"]) == 0
    assert main(["report", out, "--out", page]) == 0
    sections = {name: count for name, count in SECTIONS.items() if name != "lanes"}  # it has one
    for width in (1280, 390):
        check_page(browser, tmp_path / "report.html", width, False, sections)
