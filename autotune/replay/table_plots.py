"""The page of a comparison: boxes over seeds for each task, and curves of model latency against time."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go
from plotly.io import to_html

from autotune.replay.tables import Table


def write_page(path: Path, tables: Sequence[Table]) -> None:
    """Write one self-contained HTML file."""
    figures = [figure for one in tables for figure in _figures(one)]
    parts = [to_html(figure, include_plotlyjs=index == 0, full_html=False) for index, figure in enumerate(figures)]
    body = "\n".join([*(_html_table(one) for one in tables), *parts])
    path.write_text(f"<!doctype html><meta charset='utf-8'><title>tune replay</title>{_STYLE}{body}\n")


_STYLE = "<style>body{font:14px sans-serif;margin:2em}td,th{padding:2px 8px;text-align:right}</style>"


def _html_table(one: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in one.heads)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in one.rows)
    return f"<h2>{escape(one.title)}</h2><table><tr>{head}</tr>{rows}</table>"


def _figures(one: Table) -> list[go.Figure]:
    boxes = go.Figure(layout={"title": one.title, "boxmode": "group"})
    for name, groups in one.series.items():
        x = [group for group, values in groups.items() for _ in values]
        boxes.add_trace(go.Box(name=name, x=x, y=[value for values in groups.values() for value in values]))
    first: dict[str, dict[str, object]] = next(iter(one.data.values()), {})
    models = first.get("curves", {})
    return [boxes, *(_curves(one, model) for model in models)]


def _curves(one: Table, model: str) -> go.Figure:
    """Latency over final latency against seconds of tuning."""
    figure = go.Figure(
        layout={
            "title": f"{model}: model latency over its final one, median over seeds",
            "xaxis": {"type": "log", "title": "seconds of tuning"},
            "yaxis": {"type": "log"},
        }
    )
    for name, facts in one.data.items():
        curve = facts["curves"][model]
        figure.add_trace(go.Scatter(name=name, x=curve["time_s"], y=curve["ratio"], line={"shape": "hv"}))
    return figure
