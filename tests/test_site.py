"""The pages of the site and the checks on them: navigation, links, lengths, sentences, the release's name."""

import re

import pytest

from tests.docs.sentences import PACKAGES, ROOT, empty_names, long_pages, sentences, weak_openings, word_count
from tests.docs.terminal import COMMANDS, with_outputs
from tests.evidence.ledger import release

DOCS = ROOT / "docs"
WRITTEN = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = sorted(DOCS.rglob("*.md"))
NAVIGATION = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)

MOST_LINES = 120
REFERENCE = {"cli.md", "api.md", "conformance.md"}
"""Generated pages, which may be longer."""


def prose(path):
    """A page's text without its code."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: code[0].replace("](", "] ("), text)


def slug(heading):
    """A heading's anchor, as forges and the site make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")


def anchors(path):
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)}


def links(path):
    """(file, anchor) of every link and picture that leads to a file of this repository."""
    pairs = re.findall(r"\]\(([^)\s]*)\)|(?:src|href)=\"([^\"]*)\"", prose(path))
    for link in (first or second for first, second in pairs):
        if not link.startswith("https://"):
            target, _, anchor = link.partition("#")
            yield (path.parent / target).resolve() if target else path, anchor


def test_the_navigation_has_every_page_once():
    assert sorted(NAVIGATION) == sorted(path.relative_to(DOCS).as_posix() for path in PAGES)


def test_the_first_page_leads_to_every_user_page():
    reached = {target for target, _ in links(DOCS / "index.md")}
    assert [path.name for path in PAGES if path.parent == DOCS and path not in {*reached, DOCS / "index.md"}] == []
    notes = {target for target, _ in links(DOCS / "lab/index.md")}
    assert [path.name for path in PAGES if path.parent != DOCS and path not in {*notes, DOCS / "lab/index.md"}] == []


@pytest.mark.parametrize("path", [*WRITTEN, *PAGES], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_and_anchors_lead_somewhere(path):
    for target, anchor in links(path):
        assert target.exists(), target
        assert not anchor or anchor in anchors(target), (target.name, anchor)


def test_pages_of_the_site_link_to_the_site_alone():
    """A link out of docs/ would lead nowhere on the site."""
    outside = [(path.name, target) for path in PAGES for target, _ in links(path) if not target.is_relative_to(DOCS)]
    assert outside == []


@pytest.mark.parametrize("path", [ROOT / "README.md", *DOCS.glob("*.md")], ids=lambda path: path.name)
def test_a_user_page_is_short(path):
    lines = len(path.read_text().splitlines())
    assert path.name in REFERENCE or lines <= MOST_LINES, f"{path.name} has {lines} lines: move tables to a lab note"


def test_the_site_asks_no_other_host():
    text = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in text
    assert "offline" not in text  # this plugin loads a script from another host
    assert not re.search(r"https?://", text)
    assert [path.name for path in PAGES if "```mermaid" in path.read_text()] == []  # drawn by a script from elsewhere


def test_notes_are_named_by_day_and_topic():
    for path in (DOCS / "lab").glob("*.md"):
        assert path.name == "index.md" or re.fullmatch(r"20\d\d-\d\d-\d\d-[a-z0-9.-]+\.md", path.name), path.name


PAGE = """# A heading is no sentence

*Measured at 0.1.0+abc, 2026-01-02, a CPU.*

One two [three four](five.md#six). Seven `eight nine` ten! Version 0.2.0 is out.

| a | table |
|---|---|

- An item
  goes on.
- Another

```sh
tune run model.onnx
```
"""


def test_sentences_are_counted_without_tables_code_and_links():
    assert [word_count(sentence) for sentence in sentences(PAGE)] == [4, 3, 4, 4, 1]


def test_a_release_has_one_name_and_a_short_changelog():
    version = release()
    changes = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## (\d\S*) - (\d{4}-\d\d-\d\d)\n(.*?)(?=^## |\Z)", changes, re.MULTILINE | re.DOTALL)
    assert newest[1] == version
    assert len(newest[3].strip().splitlines()) <= 25
    assert newest[3].strip().startswith("**Upgrade:**")
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"version: {version}\n" in citation
    assert f'date-released: "{newest[2]}"' in citation


def test_a_docstring_that_starts_with_of_what_or_as_is_found(tmp_path):
    for package in PACKAGES:
        (tmp_path / package).mkdir()
    source = '"""Often right."""\n\nX = 1\n"""Of X."""\nY = 1\n"""What Y is."""\n\n\ndef f():\n    """As ``g``."""\n'
    (tmp_path / PACKAGES[0] / "code.py").write_text(source)
    assert [complaint.split(": ")[1].split(" starts")[0] for complaint in weak_openings(tmp_path)] == [
        "'Of X.'",
        "'What Y is.'",
        "'As ``g``.'",
    ]


def test_a_name_that_says_nothing_is_found(tmp_path):
    for package in PACKAGES:
        (tmp_path / package).mkdir()
    (tmp_path / PACKAGES[0] / "code.py").write_text(
        "def f(made, *, row):\n    given: int = made.found\n    return [each for each in row if each(found=given)]\n"
    )
    (tmp_path / PACKAGES[1] / "code.py").write_text(
        "match 1:\n    case int(found):\n        pass\ntry:\n    rows = 1\nexcept ValueError as made:\n    pass\n"
    )
    assert [complaint.split(" does")[0] for complaint in empty_names(tmp_path)] == [
        f"{PACKAGES[0]}/code.py:1: 'made'",
        f"{PACKAGES[0]}/code.py:2: 'given'",
        f"{PACKAGES[0]}/code.py:3: 'each'",
        f"{PACKAGES[1]}/code.py:6: 'made'",
        f"{PACKAGES[1]}/code.py:2: 'found'",
    ]


def test_a_page_with_long_sentences_is_found(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("It is short.\n")
    (tmp_path / "docs/long.md").write_text(f"# Long\n\n{'word ' * 30}end.\n")
    (complaint,) = long_pages(tmp_path)
    assert complaint.startswith("docs/long.md: 31.0 words a sentence, p90 31")


@pytest.mark.parametrize("text", ["old", "a\nlonger\nblock"])
def test_terminal_output_is_replaced_between_its_marks(text):
    page = f"before\n<!-- run:begin -->\n{text}\n<!-- run:end -->\nafter\n"
    replaced = with_outputs(page, {"run": "2.59 ms\n"}, "*A real run.*")
    assert replaced == (
        f"before\n<!-- run:begin -->\n```console\n$ {COMMANDS['run']}\n2.59 ms\n```\n\n*A real run.*\n"
        "<!-- run:end -->\nafter\n"
    )
    assert with_outputs(replaced, {"run": "2.59 ms\n"}, "*A real run.*") == replaced
