"""``python -m tests.docs sentences``: lengths of sentences on user pages; docstrings and names that say nothing."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("autotune", "search", "costmodels", "schedules", "tuning_logs")

MOST_MEAN, MOST_P90 = 18.0, 28
"""Words per sentence of a page."""

SHOWN = 8
"""Sentences that are printed for a page that fails, longest first."""

GENERATED = ("cli.md", "api.md", "errors.md")
"""Made from help, docstrings and provoked errors; the docstrings are checked at their source."""

EMPTY_NAMES = frozenset({"each", "found", "made", "given"})
"""Names of variables, parameters and fields that do not say what they hold."""


def user_pages(root: Path = ROOT) -> list[Path]:
    """Return README and every written page of the site: neither generated ones nor lab notes."""
    return [root / "README.md", *(path for path in sorted((root / "docs").glob("*.md")) if path.name not in GENERATED)]


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page without its code, tables, headings, stamps and link targets."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->|<[^>\n]+>", "", text, flags=re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        lines = [line for line in paragraph.splitlines() if not re.match(r"\s*(?:\||#)|    |\*Measured ", line)]
        words = re.sub(r"^\s*(?:[-*]|\d+\.) ", "", " ".join(lines))
        words = " ".join(words.replace("*", "").split())
        yield from (sentence for sentence in re.split(r"(?<=[.!?])[)\"]? +(?=\S)", words) if word_count(sentence))


def word_count(sentence: str) -> int:
    """Return how many of a sentence's words hold a letter or a digit."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def long_pages(root: Path = ROOT) -> list[str]:
    """Return a complaint for every page whose sentences are too long, with the longest ones."""
    complaints = []
    for path in user_pages(root):
        ordered = sorted(sentences(path.read_text()), key=word_count)
        counts = [word_count(sentence) for sentence in ordered] or [0]
        mean, p90 = statistics.mean(counts), counts[int(0.9 * (len(counts) - 1))]
        if mean > MOST_MEAN or p90 > MOST_P90:
            longest = "".join(f"\n    {word_count(sentence)}: {sentence}" for sentence in ordered[: -SHOWN - 1 : -1])
            complaints.append(f"{path.relative_to(root)}: {mean:.1f} words a sentence, p90 {p90}{longest}")
    return complaints


def weak_openings(root: Path = ROOT) -> list[str]:
    """Return every docstring that starts with "Of", "What", "Where", "Through" or "As ``", not a subject or a verb."""
    complaints = []
    for path, node in _nodes(root):
        text = _documentation(node)
        if text and re.match(r"(?:Of|What|Where|Through|As ``)(?:\W|\b)", text):
            first = text.strip().splitlines()[0]
            complaints.append(f"{path}: {first!r} starts without a subject or a verb")
    return complaints


def empty_names(root: Path = ROOT) -> list[str]:
    """Return a complaint for every variable, parameter and field of the library that has one of ``EMPTY_NAMES``."""
    return [
        f"{path}:{node.lineno}: {name!r} does not say what it holds"
        for path, node in _nodes(root)
        if (name := _bound_name(node)) in EMPTY_NAMES
    ]


def _nodes(root: Path) -> Iterator[tuple[Path, Any]]:
    """Yield every node of the library's syntax trees with the path of its file."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                yield path.relative_to(root), node


def _bound_name(node: ast.AST) -> str | None:
    """Return the name that a node binds to a value; None if it binds none."""
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else None
    if isinstance(node, ast.arg):
        return node.arg
    return node.name if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) else None


def _documentation(node: ast.AST) -> str:
    """Return the text of a statement that only documents, or nothing."""
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def check(root: Path = ROOT) -> int:
    """Print the complaints and the figures over all pages; return 1 if there are complaints."""
    complaints = [*long_pages(root), *weak_openings(root), *empty_names(root)]
    counts = sorted(word_count(text) for path in user_pages(root) for text in sentences(path.read_text()))
    mean, p90 = statistics.mean(counts), counts[int(0.9 * (len(counts) - 1))]
    print("\n".join([*complaints, f"user pages: {mean:.1f} words a sentence, p90 {p90}, longest {counts[-1]}"]))
    return 1 if complaints else 0
