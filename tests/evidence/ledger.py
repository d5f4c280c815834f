"""The ledger of claims: which command measured the figures of a user page, with which version, where and when.

``docs/claims.toml`` holds a table ``[[claim]]`` for every section of README.md and docs/*.md that states a figure.
Below the section's heading stands a line made from its claim. Lab notes (docs/lab) name their own machines and commits.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEDGER = Path("docs/claims.toml")

FIGURE = re.compile(r"(?<![\w.,])\d[\d,.]*\s?(?:ms|µs|s|×|%|GFLOPS|GB/s|MB|MiB|records/s|times)(?![\w/])")
"""What counts as a figure: a number with one of these units."""

GENERATED = ("docs/cli.md", "docs/api.md")
"""Pages made from help and docstrings: they describe, and measure nothing."""

NIGHT_S = 11 * 3600
"""Seconds that all commands together may take."""

_HEADING = re.compile(r"#+ (.*)")
_MARK = "*Measured at "

HEADER = """\
# Where the figures of README.md and docs/*.md come from: a claim for every section that states one.
# `make evidence` runs the commands and renews version, date, machine and figures; `make evidence ACTION=status` lists
# the version of each claim. tests/evidence says what the fields mean.
"""


@dataclass(frozen=True)
class Claim:
    """The evidence of one section.

    Attributes:
        section: file and heading, such as ``docs/branches.md#When it pays``.
        command: measures the figures; empty where the figures are constants of the code.
        seconds: how long the command takes, about.
        needs: what the command needs besides a CPU, such as ``gpu``; empty for nothing.
        version: version of the program in the last run, with its commit, such as ``0.1.0+4bead28``; empty if constant.
        date, machine: day and machine of the last run.
        figures: pairs of patterns with one group each: where the command's output has a figure, and where the section.
    """

    section: str
    command: str = ""
    seconds: int = 0
    needs: str = ""
    version: str = ""
    date: str = ""
    machine: str = ""
    figures: tuple[tuple[str, str], ...] = ()

    @property
    def page(self) -> Path:
        """The file of the section."""
        return Path(self.section.partition("#")[0])

    @property
    def heading(self) -> str:
        """The section's heading."""
        return self.section.partition("#")[2]

    @property
    def mark(self) -> str:
        """The line below the section's heading; empty for constants of the code."""
        stamp = ", ".join(part for part in (self.version, self.date, self.machine) if part)
        return f"{_MARK}{stamp}.*" if self.version else ""


def release(root: Path = ROOT) -> str:
    """The version of the program."""
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def read_ledger(root: Path = ROOT) -> list[Claim]:
    """The claims in the file's order."""
    entries = tomllib.loads((root / LEDGER).read_text())["claim"]
    return [Claim(**{**entry, "figures": tuple(map(tuple, entry.get("figures", ())))}) for entry in entries]


def write_ledger(claims: Iterable[Claim], root: Path = ROOT) -> None:
    """Inverse of ``read_ledger``; fields that have their default are left out."""
    defaults = {field.name: field.default for field in fields(Claim)}
    tables = [
        "[[claim]]\n"
        + "".join(
            f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
            for name, value in asdict(claim).items()
            if value != defaults[name]
        )
        for claim in claims
    ]
    (root / LEDGER).write_text(HEADER + "\n" + "\n".join(tables))


def pages(root: Path = ROOT) -> list[Path]:
    """The documents that may state figures, relative to ``root``."""
    paths = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return [path.relative_to(root) for path in paths if path.relative_to(root).as_posix() not in GENERATED]


def sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """(heading, its lines without code blocks) of every section of a page; text above the first heading has ``""``."""
    heading, lines, fenced = "", list[str](), False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and (match := _HEADING.fullmatch(line)):
            yield heading, lines
            heading, lines = match[1].strip(), []
        elif not fenced:
            lines.append(line)
    yield heading, lines


def stated(root: Path = ROOT) -> list[str]:
    """Every section that states a figure, as ``Claim.section`` names it."""
    return [
        f"{page.as_posix()}#{heading}"
        for page in pages(root)
        for heading, lines in sections((root / page).read_text())
        if any(FIGURE.search(re.sub(r"`[^`]*`", "", line)) for line in lines if not line.startswith(_MARK))
    ]


def marked(text: str, claims: Iterable[Claim]) -> str:
    """A page's text with the line of each of its ``claims`` below the heading."""
    lines = {claim.heading: claim.mark for claim in claims if claim.mark}
    result, fenced, old = list[str](), False, iter(text.splitlines())
    for line in old:
        if line.startswith(_MARK):
            next(old, None)  # the empty line behind it
            continue
        result.append(line)
        fenced ^= line.startswith("```")
        match = None if fenced else _HEADING.fullmatch(line)
        if match and match[1].strip() in lines:
            result += ["", lines[match[1].strip()]]
    return "\n".join(result) + "\n"


def section_span(text: str, heading: str) -> tuple[int, int]:
    """Where in a page's text the section under ``heading`` begins and ends.

    Raises:
        ValueError: if there is no such heading.
    """
    text = re.sub(r"^```.*?^```", lambda fenced: " " * len(fenced[0]), text, flags=re.MULTILINE | re.DOTALL)
    match = re.search(rf"^#+ {re.escape(heading)}\s*$", text, re.MULTILINE)
    if match is None:
        raise ValueError(f"no heading {heading!r}")
    after = re.compile(r"^#+ ", re.MULTILINE).search(text, match.end())
    return match.end(), after.start() if after else len(text)


def renewed(text: str, claim: Claim, output: str) -> str:
    """A page's text with the figures of ``claim`` taken from its command's ``output``.

    Raises:
        ValueError: if a pattern finds nothing in the output or in the section.
    """
    for in_output, in_section in claim.figures:
        figure = re.search(in_output, output, re.MULTILINE)
        begin, end = section_span(text, claim.heading)
        place = re.compile(in_section).search(text, begin, end)
        if figure is None or place is None:
            missing = "the output" if figure is None else "the section"
            raise ValueError(
                f"{claim.section}: {missing} has nothing like {in_output if figure is None else in_section!r}"
            )
        text = text[: place.start(1)] + figure[1] + text[place.end(1) :]
    return text
