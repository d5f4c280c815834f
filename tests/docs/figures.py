"""The table of the README: copied out of docs/benchmarks.md, so that no figure is kept by hand in two places."""

from __future__ import annotations

import re
from collections.abc import Iterator

MODELS = ("ResNet-50", "SqueezeNet", "Inception v1", "VGG-19", "ShuffleNet", "encoder", "MLP", "QDQ CNN")
COLUMNS = (
    *("`tune run`, s", "ours, fp32 ms", "ours, `auto` ms"),
    *("ONNX Runtime ms", "OpenVINO, fp32 ms", "OpenVINO's default ms"),
)
"""Those of the page's table that the README shows; all but the first are timings."""

BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"


def with_figures(readme: str, benchmarks: str) -> str:
    """``readme`` with its table and the sums below it made from docs/benchmarks.md; the fastest of a row is bold."""
    lines = [f"| model | {' | '.join(COLUMNS)} |", "|---|" + "---|" * len(COLUMNS)]
    table = benchmarks.partition("<!-- bench:begin -->")[2].partition("<!-- bench:end -->")[0]
    rows = {plain(row["model"]): row for row in rows_of(table)}
    for model in MODELS:
        if plain(model) not in rows:
            continue
        seconds, *times = (rows[plain(model)][column] for column in COLUMNS)
        least = min(times, key=float)
        shown = [f"**{time}**" if time == least else time for time in times]
        lines.append(f"| {model} | {seconds} | {' | '.join(shown)} |")
    lines += ["", *(line for line in table.splitlines() if line.startswith("- "))]
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}"


def rows_of(table: str) -> Iterator[dict[str, str]]:
    """Every row of a table in Markdown: column → cell."""
    heads, _, *body = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")
    ]
    return (dict(zip(heads, cells, strict=True)) for cells in body)


def plain(name: str) -> str:
    """Letters and digits alone, small."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
