"""The report: its numbers, its words, and that a real browser draws it, offline, on a desk and on a phone."""

import shutil
from dataclasses import replace

import pytest

from autotune.cli.main import main
from autotune.options import Options
from autotune.report.bottlenecks import summary
from autotune.report.facts import read_facts
from autotune.report.page import command, render, write_report
from autotune.tuning.run_history import read_history, remember
from schedules.vocabulary.errors import ArtifactError
from tests.chromium import Chromium, find_browser
from tests.models import cached

MOST_BYTES = 5 * 2**20


def test_without_a_history_it_says_so(tiny):
    facts = read_facts(tiny.artifact)
    assert "not recorded" in summary(facts)[-1]
    page = render(facts)
    assert "<h2>Model latency over tuning time" not in page
    assert "tune bench tiny.tuned" in page
    assert "none was measured" in summary(facts)[0]  # not "0.000 ms, most of it in" nothing
    assert "<td>0.0%</td>" not in page


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
    assert "--until never" in command(facts, replace(run, options={**run.options, "until": 0.0}))
    assert "--effort full" in command(facts, replace(run, options={**run.options, "effort": "full"}))


def test_text_of_others_is_escaped(told):
    page = render(read_facts(told))
    assert "<expected>" not in page
    assert "&lt;expected&gt;" in page


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
    few = ["--trials", "120", "--budget", "40s", "--until", "never", "--log", log, "--quiet"]
    assert main(["run", str(cached("resnet50")), "--out", out, *few]) == 0
    assert main(["bench", out, "--model", str(cached("resnet50")), "--rounds", "3", "--quiet"]) == 0
    assert main(["report", out, "--out", page]) == 0
    sections = {name: count for name, count in SECTIONS.items() if name != "lanes"}  # it has one
    for width in (1280, 390):
        check_page(browser, tmp_path / "report.html", width, False, sections)


def test_the_first_figures_are_of_one_comparison(told):
    text = render(read_facts(told))
    assert "<b>1 ms</b><span>the entire model, tuned</span>" in text  # of the bench, not of the build
    assert '<b class="good">×1.50</b><span>the speed of onnxruntime, timed in turn</span>' in text
