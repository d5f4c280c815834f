"""The ledger covers every figure of the user pages, and says with which version each was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.evidence.__main__ import unmarked
from tests.evidence.ledger import (
    NIGHT_S,
    ROOT,
    Claim,
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
    (tmp_path / "docs/lab").mkdir()
    (tmp_path / "docs/lab/2026-01-02-speed.md").write_text(PAGE)
    return tmp_path


CLAIM = Claim("docs/speed.md#Speed", "measure", version="0.1.0+abc", date="2026-01-02", machine="a CPU")


def test_every_section_with_a_figure_has_a_claim() -> None:
    assert sorted(set(stated()) - {claim.section for claim in read_ledger()}) == []


def test_every_claim_has_a_section_and_a_command_or_constants() -> None:
    headings = {
        f"{page.as_posix()}#{heading}" for page in pages() for heading, _ in sections((ROOT / page).read_text())
    }
    for claim in read_ledger():
        assert claim.section in headings
        assert bool(claim.command) == bool(claim.version) == bool(claim.date), claim.section


def test_all_commands_run_within_a_night() -> None:
    seconds = {claim.command: claim.seconds for claim in read_ledger()}  # a command may stand behind several sections
    assert 0 < sum(seconds.values()) <= NIGHT_S


def test_pages_say_how_old_their_figures_are() -> None:
    assert not list(unmarked(read_ledger())), "run 'make evidence ACTION=mark'"


def test_a_section_with_a_figure_is_found_but_neither_code_blocks_nor_lab_notes_are(root: Path) -> None:
    assert stated(root) == ["docs/speed.md#Speed"]


def test_constants_get_no_line() -> None:
    assert Claim("docs/speed.md#Speed").mark == ""
    assert CLAIM.mark == "*Measured at 0.1.0+abc, 2026-01-02, a CPU.*"


def test_marking_twice_changes_nothing() -> None:
    once = marked(PAGE, [CLAIM])
    assert CLAIM.mark in once.splitlines()
    assert marked(once, [CLAIM]) == once
    assert marked(once, []) == PAGE


def test_figures_are_taken_from_the_output() -> None:
    claim = replace(CLAIM, figures=((r"median ([\d.]+)", r"takes ([\d.]+) ms"),))
    assert "It takes 9.75 ms." in renewed(PAGE, claim, "median 9.75 ms\n")
    with pytest.raises(ValueError, match="the output has nothing"):
        renewed(PAGE, claim, "no figure")


def test_a_figure_is_only_replaced_in_its_own_section() -> None:
    claim = replace(CLAIM, section="docs/speed.md#Rest", figures=((r"median ([\d.]+)", r"takes ([\d.]+) ms"),))
    with pytest.raises(ValueError, match="the section has nothing"):
        renewed(PAGE, claim, "median 9.75 ms\n")


def test_the_ledger_is_read_as_it_was_written(root: Path) -> None:
    claims = [replace(CLAIM, figures=((r"a\d", r"b (\d)"),)), Claim("README.md#Name")]
    write_ledger(claims, root)
    assert read_ledger(root) == claims
