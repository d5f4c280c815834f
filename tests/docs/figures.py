"""The table of the README: copied out of docs/benchmarks.md, so that no figure is kept by hand in two places."""

from __future__ import annotations

import re
from collections.abc import Iterator

MODELS = ("ResNet-50", "SqueezeNet", "Inception v1", "VGG-19", "ShuffleNet", "encoder", "MLP", "QDQ CNN")
ENGINES = {
    "ours": "`tune`, fp32",
    "onnx": "ONNX Runtime",
    "openvinoms": "OpenVINO, fp32",
    "openvinodefault": "OpenVINO's default (bf16, int8)",
}
"""How a column of the page begins, letters alone → its name in the README."""

BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"


def with_figures(readme: str, benchmarks: str) -> str:
    """``readme`` with its table made anew from the text of docs/benchmarks.md; the fastest of every row is bold."""
    lines = ["| model | `tune run`, s | " + " | ".join(ENGINES.values()) + " |", "|---|---|" + "---|" * len(ENGINES)]
    for model in MODELS:
        row = next((row for row in rows(benchmarks) if plain(row["model"]) == plain(model)), None)
        if row is None:
            continue
        times = [row[next(head for head in row if plain(head).startswith(engine))].strip("*") for engine in ENGINES]
        least = min(times, key=float)
        shown = [f"**{time}**" if time == least else time for time in times]
        lines.append(f"| {model} | {row['seconds']} | {' | '.join(shown)} |")
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}"


def rows(page: str) -> Iterator[dict[str, str]]:
    """Every row of every table of a page that times our own artifacts: column → cell."""
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        heads, _, *body = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
        if heads[0] == "model" and all(any(plain(h).startswith(e) for h in heads) for e in ENGINES):
            yield from (dict(zip(heads, cells, strict=True)) for cells in body)


def plain(name: str) -> str:
    """Letters and digits alone, small."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
