"""The page of a comparison: the spread over seeds for each task, and curves of model latency against time."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from autotune.contrib.replay.tables import Table
from autotune.report.svg import Canvas, Scale, number
from tuning_logs.durable import write_file

WIDTH, LEFT, RIGHT = 900, 260, 880
"""Pixels: of a plot, and the edges of its scale."""
ROW_HEIGHT, BAR_HEIGHT = 18, 12
CURVE_HEIGHT = 320

COLOURS = ("#0b6e99", "#c2571a", "#4b8b3b", "#8a4fa3", "#b5892e", "#3f9c98", "#b8446e", "#7b8790")
"""Colours of the strategies, in their order."""

STYLE = (
    "body{font:14px sans-serif;margin:2em}td,th{padding:2px 8px;text-align:right}svg{font-size:11px}"
    ".grid{stroke:#e6e8ea}.whisker,.median{stroke:#1d2125}path{fill:none;stroke-width:2}"
    + "".join(f"rect.c{n},text.c{n}{{fill:{colour}}}path.c{n}{{stroke:{colour}}}" for n, colour in enumerate(COLOURS))
)


def write_page(path: Path, tables: Sequence[Table]) -> None:
    """Write one HTML file that needs no network, no script and no other file."""
    parts = [f"<!doctype html><meta charset='utf-8'><title>tune replay</title><style>{STYLE}</style>"]
    for table in tables:
        parts += [_html_table(table), _spread_plot(table)]
        first: dict[str, Any] = next(iter(table.data.values()), {})
        parts += [_curve_plot(table, model) for model in first.get("curves", {})]
    write_file(path, ("\n".join(parts) + "\n").encode())


def _html_table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.heads)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<h2>{escape(table.title)}</h2><table><tr>{head}</tr>{rows}</table>"


def _colour(index: int) -> str:
    return f"c{index % len(COLOURS)}"


def _spread_plot(table: Table) -> str:
    """A bar from the first to the third quartile per group and strategy; the line is from the least to the largest."""
    groups = dict.fromkeys(group for by_group in table.series.values() for group in by_group)
    rows = [
        (group, index, name, by_group[group])
        for group in groups
        for index, (name, by_group) in enumerate(table.series.items())
        if by_group.get(group)
    ]
    if not rows:
        return ""
    bottom = ROW_HEIGHT * len(rows)
    canvas = Canvas(WIDTH, bottom + 36, table.title)
    every = [value for *_, values in rows for value in values]
    x = Scale(min(0.0, *every), max(every), LEFT, RIGHT)
    canvas.axis_x(x, bottom, 0, "")
    for row, (group, index, name, values) in enumerate(rows):
        top = ROW_HEIGHT * row + 3
        least, first, median, third, largest = (float(value) for value in np.quantile(values, (0, 0.25, 0.5, 0.75, 1)))
        canvas.text(LEFT - 8, top + 10, f"{group} · {name}", _colour(index), "end")
        canvas.line(x(least), top + BAR_HEIGHT / 2, x(largest), top + BAR_HEIGHT / 2, "whisker")
        title = f"{name}, {group}: {number(median)} ({number(first)} to {number(third)})"
        canvas.rect(x(first), top, x(third) - x(first), BAR_HEIGHT, _colour(index), title)
        canvas.line(x(median), top, x(median), top + BAR_HEIGHT, "median")
    return canvas.render()


def _curve_plot(table: Table, model: str) -> str:
    """Latency over final latency against seconds of tuning, both logarithmic."""
    curves = {name: facts["curves"][model] for name, facts in table.data.items()}
    points = {
        name: [(t, ratio) for t, ratio in zip(curve["time_s"], curve["ratio"], strict=True) if t > 0 and ratio > 0]
        for name, curve in curves.items()
    }
    every = [point for curve in points.values() for point in curve]
    if not every:
        return ""
    title = f"{model}: model latency over its final one, median over seeds"
    canvas = Canvas(WIDTH, CURVE_HEIGHT + 40, title)
    times, ratios = [t for t, _ in every], [ratio for _, ratio in every]
    x = Scale(min(times), max(times), 60, RIGHT, log=True)
    y = Scale(min(ratios), max(ratios), CURVE_HEIGHT, 40, log=True)
    canvas.text(60, 14, title)
    canvas.axis_x(x, CURVE_HEIGHT, 40, "seconds of tuning")
    canvas.axis_y(y, 60, RIGHT, "")
    for index, (name, line) in enumerate(points.items()):
        canvas.text(RIGHT, 56 + 14 * index, name, _colour(index), "end")
        if line:
            canvas.path([(x(t), y(ratio)) for t, ratio in line], _colour(index), step=True)
    return canvas.render()
