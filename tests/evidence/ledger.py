"""The ledger of claims: which command made the figures of a section of the documentation, of which code, where, when.

``docs/claims.toml`` holds a table ``[[claim]]`` for every section of README.md and docs/*.md that states a measured
figure. Below the section's heading stands a line that is made from its claim, so that a reader sees the date as well.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LEDGER = Path("docs/claims.toml")

FIGURE = re.compile(r"\d[\d,.]*\s?(?:ms|µs|s|×|%|GFLOPS|GB/s|MB|MiB|records/s|times)(?![\w/])")
"""What counts as a figure: a number with one of these units."""

GENERATED = ("docs/cli.md", "docs/api.md")
"""Pages made from help and docstrings: they describe, and measure nothing."""

_HEADING = re.compile(r"#+ (.*)")
_MARK = "*Evidence: "

HEADER = """\
# Where the figures of README.md and docs/ come from: a claim for every section that states a measured figure.
# `make evidence` runs the commands and renews commit, date, machine and digest; `make evidence ACTION=mark` only notes
# whose code has changed. tests/evidence says what the fields mean.
"""


@dataclass(frozen=True)
class Claim:
    """The evidence of one section.

    Attributes:
        section: file and heading, such as ``docs/duet.md#Figures``.
        command: makes the figures; empty where none was kept, or, with no date, where the figures are constants of the
            code, which need no measuring.
        code: files and patterns that the figures depend on.
        seconds: how long the command takes, about.
        needs: what the command needs beside a CPU, such as ``gpu``; empty for nothing.
        commit, date, machine: of the last run; of figures older than the ledger, the commit that wrote them, and its
            day. Empty where it was never noted.
        digest: of the code at that run.
        figures: pairs of patterns with one group each: where the command's output has a figure, and where the section.
    """

    section: str
    command: str
    code: tuple[str, ...]
    seconds: int = 0
    needs: str = ""
    commit: str = ""
    date: str = ""
    machine: str = ""
    digest: str = ""
    figures: tuple[tuple[str, str], ...] = ()

    @property
    def page(self) -> Path:
        """The file of the section."""
        return Path(self.section.partition("#")[0])

    @property
    def heading(self) -> str:
        """The section's heading."""
        return self.section.partition("#")[2]

    def is_current(self, root: Path = ROOT) -> bool:
        """Whether the code is what it was when the figures were made."""
        return not self.is_measured or self.digest == code_digest(self.code, root)

    @property
    def is_measured(self) -> bool:
        """Whether the figures were measured; else they are constants of the code."""
        return bool(self.command or self.date)

    def mark(self, root: Path = ROOT) -> str:
        """The line below the section's heading."""
        if not self.is_measured:
            return f"{_MARK}constants of the code.*"
        made = ", ".join(part for part in (self.date, self.machine, self.commit and f"code {self.commit}") if part)
        age = "" if self.is_current(root) else "; the code has changed since"
        return f"{_MARK}{made or 'no run noted'}{age}{'' if self.command else '; its command was not kept'}.*"


def code_digest(patterns: Iterable[str], root: Path = ROOT) -> str:
    """Hash of all files that match: of their contents, of Python files without comments, documentation and layout.

    Raises:
        ValueError: if a pattern matches no file.
    """
    found: set[Path] = set()
    for pattern in patterns:
        files = {path for path in root.glob(pattern) if path.is_file() and "__pycache__" not in path.parts}
        if not files:
            raise ValueError(f"no file matches {pattern!r}: name the claim's code anew")
        found |= files
    sha = hashlib.sha256()
    for path in sorted(found):
        sha.update(path.relative_to(root).as_posix().encode() + b"\0" + _meaning(path, path.stat().st_mtime_ns) + b"\0")
    return sha.hexdigest()[:16]


@cache
def _meaning(path: Path, changed_ns: int) -> bytes:
    """What a file says to a machine; ``changed_ns`` tells one version from another."""
    del changed_ns
    text = path.read_bytes()
    if path.suffix != ".py":
        return text
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):  # a lambda's is one expression
            node.body = [each for each in body if not _is_documentation(each)]  # type: ignore[attr-defined]
    return ast.dump(tree).encode()


def _is_documentation(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def read_ledger(root: Path = ROOT) -> list[Claim]:
    """The claims in the file's order."""
    entries = tomllib.loads((root / LEDGER).read_text())["claim"]
    lists = {"code": tuple, "figures": lambda pairs: tuple((found, stated) for found, stated in pairs)}
    return [Claim(**{name: lists.get(name, lambda x: x)(value) for name, value in entry.items()}) for entry in entries]


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
    found = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return [path.relative_to(root) for path in found if path.relative_to(root).as_posix() not in GENERATED]


def sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """(heading, its lines without code blocks) of every section of a page; text above the first heading has ``""``."""
    heading, lines, fenced = "", list[str](), False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and (found := _HEADING.fullmatch(line)):
            yield heading, lines
            heading, lines = found[1].strip(), []
        elif not fenced:
            lines.append(line)
    yield heading, lines


def stated(root: Path = ROOT) -> list[str]:
    """Every section that states a figure, as ``Claim.section`` names it."""
    return [
        f"{page.as_posix()}#{heading}"
        for page in pages(root)
        for heading, lines in sections((root / page).read_text())
        if any(FIGURE.search(line) for line in lines if not line.startswith(_MARK))
    ]


def marked(text: str, claims: Iterable[Claim], root: Path = ROOT) -> str:
    """A page's text with the line of each of its ``claims`` below the heading."""
    lines = {claim.heading: claim.mark(root) for claim in claims}
    made, fenced, old = list[str](), False, iter(text.splitlines())
    for line in old:
        if line.startswith(_MARK):
            next(old, None)  # the empty line behind it
            continue
        made.append(line)
        fenced ^= line.startswith("```")
        found = None if fenced else _HEADING.fullmatch(line)
        if found and found[1].strip() in lines:
            made += ["", lines[found[1].strip()]]
    return "\n".join(made) + "\n"


def section_span(text: str, heading: str) -> tuple[int, int]:
    """Where in a page's text the section under ``heading`` begins and ends.

    Raises:
        ValueError: if there is no such heading.
    """
    text = re.sub(r"^```.*?^```", lambda fenced: " " * len(fenced[0]), text, flags=re.MULTILINE | re.DOTALL)
    found = re.search(rf"^#+ {re.escape(heading)}\s*$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"no heading {heading!r}")
    after = re.compile(r"^#+ ", re.MULTILINE).search(text, found.end())
    return found.end(), after.start() if after else len(text)


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
