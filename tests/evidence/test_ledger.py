"""The ledger covers every figure of the documentation, and says of each whether its code has changed since."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.evidence.__main__ import unmarked
from tests.evidence.ledger import (
    ROOT,
    Claim,
    code_digest,
    marked,
    pages,
    read_ledger,
    renewed,
    sections,
    stated,
    write_ledger,
)

PAGE = "# Speed\n\nIt takes 12.5 ms.\n\n```sh\n# 3 ms in code\n```\n\n## Rest\n\nNothing.\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Name\n\nSee docs.\n")
    (tmp_path / "docs/speed.md").write_text(PAGE)
    (tmp_path / "code.py").write_text("x = 1\n")
    return tmp_path


def claim(root: Path) -> Claim:
    return Claim("docs/speed.md#Speed", "measure", ("code.py",), commit="abc", digest=code_digest(("code.py",), root))


def test_every_section_with_a_figure_has_a_claim() -> None:
    assert sorted(set(stated()) - {each.section for each in read_ledger()}) == []


def test_every_claim_has_a_section_and_code() -> None:
    headings = {
        f"{page.as_posix()}#{heading}" for page in pages() for heading, _ in sections((ROOT / page).read_text())
    }
    for each in read_ledger():
        assert each.section in headings
        assert code_digest(each.code)


def test_pages_say_how_old_their_figures_are() -> None:
    assert not list(unmarked(read_ledger())), "run 'make evidence ACTION=mark'"


def test_words_about_the_code_are_no_part_of_it(root: Path) -> None:
    was = code_digest(("code.py",), root)
    (root / "code.py").write_text('"""What x is."""\n\nx = 1  # one\n"""Documented."""\n')
    assert code_digest(("code.py",), root) == was
    (root / "code.py").write_text("x = 1.0\n")
    assert code_digest(("code.py",), root) != was


def test_a_section_with_a_figure_is_found_and_code_blocks_are_not(root: Path) -> None:
    assert stated(root) == ["docs/speed.md#Speed"]


def test_changed_code_is_noticed(root: Path) -> None:
    assert claim(root).is_current(root)
    (root / "code.py").write_text("x = 2\n")
    late = replace(claim(root), digest="0" * 16)
    assert not late.is_current(root)
    assert "the code has changed since" in late.mark(root)


def test_constants_and_lost_commands_are_told_apart(root: Path) -> None:
    assert Claim("docs/speed.md#Speed", "", ("code.py",)).mark(root) == "*Evidence: constants of the code.*"
    assert "its command was not kept" in Claim("docs/speed.md#Speed", "", ("code.py",), date="2026-11-21").mark(root)


def test_a_pattern_without_files_is_an_error(root: Path) -> None:
    with pytest.raises(ValueError, match=r"no file matches 'gone\.py'"):
        code_digest(("gone.py",), root)


def test_marking_twice_changes_nothing(root: Path) -> None:
    once = marked(PAGE, [claim(root)], root)
    assert "*Evidence: code abc.*" in once.splitlines()
    assert marked(once, [claim(root)], root) == once
    assert marked(once, [], root) == PAGE


def test_figures_are_taken_from_the_output(root: Path) -> None:
    made = replace(claim(root), figures=((r"median ([\d.]+)", r"takes ([\d.]+) ms"),))
    assert "It takes 9.75 ms." in renewed(PAGE, made, "median 9.75 ms\n")
    with pytest.raises(ValueError, match="the output has nothing"):
        renewed(PAGE, made, "no figure")


def test_a_figure_is_only_replaced_in_its_own_section(root: Path) -> None:
    made = replace(claim(root), section="docs/speed.md#Rest", figures=((r"median ([\d.]+)", r"takes ([\d.]+) ms"),))
    with pytest.raises(ValueError, match="the section has nothing"):
        renewed(PAGE, made, "median 9.75 ms\n")


def test_the_ledger_is_read_as_it_was_written(root: Path) -> None:
    claims = [replace(claim(root), figures=((r"a\d", r"b (\d)"),)), Claim("README.md#Name", "", ("code.py",))]
    write_ledger(claims, root)
    assert read_ledger(root) == claims
