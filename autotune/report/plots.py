"""The report's plots, each drawn for a width in CSS pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.report.bottlenecks import SLOWEST
from autotune.report.decisions import Decision, curve, curve_in_turn, value_at
from autotune.report.facts import Facts, Row, timeline
from autotune.report.svg import Canvas, Scale, number
from autotune.tuning.run_history import known_reference

WIDE, NARROW = 900, 342
"""Widths: of the page's column, and of a phone's 390 pixels less its margins."""

TASKS_SHOWN = 14
"""Tasks with a line of slots: the slowest."""
COLOURS = 8
"""Colours of the page's style."""
LETTER = 5.9
"""Pixels of a letter of 11 px, at most: nothing here knows the reader's fonts."""
ENGINE_NAME = 118
"""Pixels of an engine's name and latency."""
NUMBERED = 14
"""Pixels from which a call is wide enough for the number of its kernel."""


def colours(facts: Facts) -> dict[str, int]:
    """Template → number of its colour, the ones with the largest share first."""
    return {template: min(index, COLOURS - 1) for index, template in enumerate(facts.template_shares)}


def shortened(text: str, most: int) -> str:
    """At most ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def latency_plot(facts: Facts, width: int) -> str:
    """The kernels' time over the time of tuning, and below it which task got which slots."""
    points, in_turn = curve(facts), curve_in_turn(facts)
    shown = [row for row in facts.rows if row.tunable][:TASKS_SHOWN]
    left, right, bottom = (170 if width == WIDE else 96), width - 12, 262
    line_h = 15
    canvas = Canvas(
        width, bottom + 60 + line_h * len(shown), "Model latency over tuning time, and the slots of every task"
    )
    engines = _engine_lines(facts)
    values = [value for _, value in [*points, *in_turn]] + [seconds for _, seconds in engines]
    end_s = max(points[-1][0], in_turn[-1][0] if in_turn else 0.0, 1e-3)
    x = Scale(0.0, end_s, left, right)
    y = Scale(0.93e3 * min(values), 1.08e3 * max(values), bottom, 26, log=max(values) > 2.5 * min(values))
    canvas.axis_y(y, left, right, "ms, all kernels of one inference")
    canvas.axis_x(x, bottom, 26, "", 10 if width == WIDE else 5)
    canvas.path([(x(t), y(1e3 * s)) for t, s in in_turn], "turn", step=True)
    canvas.path([(x(t), y(1e3 * s)) for t, s in points], "curve", step=True)
    # Engines are often alike: their names are stacked, above the curve where it is highest below them.
    names_s = end_s * (1.0 - ENGINE_NAME / (right - left))
    above = y(1e3 * value_at(points, names_s)) + 10
    for name, seconds in sorted(engines, key=lambda engine: engine[1]):
        line = y(1e3 * seconds)
        above = min(line - 5, above - 15)
        canvas.line(left, line, right, line, "reference")
        canvas.text(right - 4, above, f"{name} {number(1e3 * seconds)} ms", "referencelabel", "end")
    canvas.text(left, bottom + 34, "s of tuning, and the slots of every task", "unit")
    _slots(canvas, facts, shown, x, bottom + 46, line_h, left)
    return canvas.render()


def _engine_lines(facts: Facts) -> list[tuple[str, float]]:
    """Name and seconds of the engines of the bench, else of the reference engine that was timed before tuning."""
    if facts.bench is not None:
        engines = facts.bench["engines"]
        return [(str(engine["name"]), engine["p50_ms"] / 1e3) for engine in engines if engine["name"] != "tune"]
    timed = known_reference(facts.runs)
    return [] if timed is None else [(timed.name, timed.latency_s)]


def _slots(canvas: Canvas, facts: Facts, shown: Sequence[Row], x: Scale, top: float, line_h: int, left: float) -> None:
    """A line of marks per task: a mark per slot, strong where it cut the model's time."""
    best: dict[str, float] = {}
    offset = 0.0
    places = {row.task.key: (top + line_h * index, row) for index, row in enumerate(shown)}
    for place, row in places.values():
        canvas.text(left - 8, place + 10, shortened(row.label, 24 if left > 120 else 12), "tick", "end")
        canvas.line(left, place + 6.5, x.end, place + 6.5, "grid")
    for run in facts.runs:
        for slot in run.slots:
            valid = [latency for latency in slot.latencies_s if latency is not None]
            before, after = best.get(slot.task), min(valid, default=None)
            if after is not None:
                best[slot.task] = after if before is None else min(before, after)
            if slot.task not in places:
                continue
            place, row = places[slot.task]
            cut_us = 1e6 * row.task.weight * max(0.0, (before - best[slot.task]) if before and valid else 0.0)
            kind = "slot first" if before is None else "slot gain" if cut_us >= 1 else "slot"
            what = f"cut {cut_us:.0f} µs" if before is not None else "first slot"
            began = x(offset + slot.began_s)
            title = f"{row.label}: {len(slot.latencies_s)} trials at {slot.began_s:.1f} s, {what}. Why: {slot.why}."
            canvas.rect(began, place + 1, x(offset + slot.ended_s) - began - 0.5, line_h - 4, kind, title)
        offset += run.slots[-1].ended_s if run.slots else 0.0


def roofline_plot(facts: Facts, width: int) -> str:
    """Operations per second against operations per byte; a disc's area is the task's share of the time."""
    roof = facts.roofline
    if roof is None:
        return ""
    rows = [row for row in facts.rows if row.gflops and row.task.flop and row.task.bytes]
    if not rows:
        return ""
    hue = colours(facts)
    left, right, bottom = 48, width - 12, 330
    intensity = {row.task.key: row.task.flop / row.task.bytes for row in rows}
    speeds = [row.gflops or 0.0 for row in rows] + [roof.gflops]
    untuned = {row.task.key: row.task.flop / row.untuned_s / 1e9 for row in rows if row.untuned_s}
    x = Scale(
        min(intensity.values()) / 1.6,
        max([*intensity.values(), roof.gflops / roof.memory_gb_s]) * 1.8,
        left,
        right,
        True,
    )
    y = Scale(min([*speeds, *untuned.values()]) / 1.5, max(speeds) * 1.7, bottom, 26, True)
    canvas = Canvas(width, bottom + 40, "Roofline of every task")
    canvas.axis_y(y, left, right, "GFLOPS")
    canvas.axis_x(x, bottom, 26, "operations per byte", 10 if width == WIDE else 5)
    labels: list[tuple[float, float, str]] = []
    for name, gb_s in (("memory", roof.memory_gb_s), ("L2", roof.l2_gb_s)):
        ridge = min(max(roof.gflops / gb_s, x.low), x.high)
        start = max(x.low, y.low / gb_s)
        if start < ridge:
            canvas.path([(x(start), y(start * gb_s)), (x(ridge), y(ridge * gb_s))], "roof")
            at = start * (ridge / start) ** 0.75  # kernels of few operations lie at the other end
            labels.append((x(at) + 8, y(at * gb_s) + 10, f"{name} {gb_s:.0f} GB/s" if width == WIDE else name))
    ridge = max(x.low, roof.gflops / max(roof.memory_gb_s, roof.l2_gb_s))
    canvas.line(x(ridge), y(roof.gflops), right, y(roof.gflops), "roof")
    labels.append((x(ridge) + 6, y(roof.gflops) - 7, f"{roof.gflops:.0f} GFLOPS"))
    for row in reversed(rows):
        px, py = x(intensity[row.task.key]), y(row.gflops or 1.0)
        before = untuned.get(row.task.key)
        if before is not None:
            canvas.line(px, y(before), px, py, "rise")
            canvas.circle(px, y(before), 2, "untuned", f"{row.label} untuned: {before:.1f} GFLOPS")
        bound = f", {row.bound_share:.0%} of its bound" if row.bound_share is not None else ""
        title = f"{row.label} ({row.task.template}): {row.gflops:.0f} GFLOPS{bound}, {row.share:.1%} of the time"
        canvas.circle(px, py, 3 + 22 * row.share**0.5, f"disc c{hue[row.task.template]}", title)
    for px, py, words in labels:
        canvas.text(px, py, words, "rooflabel")
    for rank, row in enumerate(rows[:SLOWEST], start=1):
        canvas.text(x(intensity[row.task.key]), y(row.gflops or 1.0) + 4, str(rank), "inside", "middle")
    return canvas.render()


def decision_plot(decisions: Sequence[Decision], width: int) -> str:
    """Two bars per decision: the kernels' time without it and with it. Long ones are cut, and say so."""
    if not decisions:
        return ""
    row_h, left, right = 58, 0, width - 76
    canvas = Canvas(width, row_h * len(decisions), "What each decision gained")
    limit = 3.0 * max(decision.with_s for decision in decisions)
    scale = Scale(0.0, min(limit, max(decision.without_s for decision in decisions)), left, right)
    for index, decision in enumerate(decisions):
        y = row_h * index
        gain = decision.without_s / decision.with_s if decision.with_s else 1.0
        name = decision.name if width == WIDE else shortened(decision.name, 30)
        canvas.text(left, y + 13, f"{name}: ×{gain:.2f}", "strong")
        for place, seconds, kind, words in (
            (y + 19, decision.without_s, "bar without", f"without: {decision.without}"),
            (y + 36, decision.with_s, "bar", "as shipped" if "in turn" not in decision.without else "as dealt"),
        ):
            cut = seconds > scale.high
            end = right if cut else scale(seconds)
            canvas.rect(left, place, end - left, 14, kind, f"{words}: {1e3 * seconds:.2f} ms")
            shown = shortened(words, 80 if width == WIDE else 44)
            canvas.text(left + 6, place + 11, shown, "onbar")
            value = max(end + 5, left + 12 + LETTER * len(shown))
            canvas.text(value, place + 11, f"{'» ' if cut else ''}{number(1e3 * seconds)} ms", "tick")
    return canvas.render()


def timeline_plot(facts: Facts, width: int) -> str:
    """The kernel calls of one inference, in order, on as many lines as make short ones visible."""
    spans = timeline(facts)
    if not spans:
        return ""
    hue = colours(facts)
    ranks = {row.task.key: str(rank) for rank, row in enumerate(facts.rows[:SLOWEST], start=1)}
    total_ms = 1e3 * (spans[-1][1] + spans[-1][2])
    lines = 1 if width == WIDE else 3
    ticks = Scale(0.0, total_ms, 0, 1).ticks(10)
    line_h, per_line = 44, total_ms / lines
    canvas = Canvas(width, 26 + line_h * lines + 8, "Kernels of one inference in order")
    x = Scale(0.0, per_line, 0, width)
    for line in range(lines):
        top = 20 + line_h * line
        for tick in ticks:
            place = x(tick - line * per_line)
            if 0 <= place <= width:
                anchor = "start" if place < 8 else "middle" if place < width - 8 else "end"
                canvas.text(place, top - 4, number(tick), "tick", anchor)
        for row, start, seconds in spans:
            begin, end = 1e3 * start - line * per_line, 1e3 * (start + seconds) - line * per_line
            if end <= 0 or begin >= per_line:
                continue
            begin, end = max(begin, 0.0), min(end, per_line)
            label = row.label if row is not None else "copy or library call"
            kind = f"span c{hue[row.task.template]}" if row is not None else "span"
            canvas.rect(x(begin), top, x(end) - x(begin) - 0.6, 22, kind, f"{label}: {1e6 * seconds:.0f} µs")
            if row is not None and x(end) - x(begin) >= NUMBERED:
                canvas.text((x(begin) + x(end)) / 2, top + 15, ranks.get(row.task.key, ""), "inside", "middle")
    canvas.text(
        width,
        26 + line_h * lines + 2,
        f"ms of one inference ({number(total_ms)} ms, {len(spans)} calls)",
        "unit",
        "end",
    )
    return canvas.render()


def lane_plot(facts: Facts, width: int) -> str:
    """The subgraphs of one inference, a line per lane; empty where nothing runs side by side."""
    spans = facts.runs[-1].lanes if facts.runs else ()
    if not spans:
        return ""
    names = sorted({lane for lane, *_ in spans})
    line_h, left, bottom = 34, 64, 34 * len(names) + 4
    canvas = Canvas(width, bottom + 36, "Subgraphs of one inference on their lanes")
    x = Scale(0.0, 1e3 * max(end for *_, end in spans), left, width - 8)
    canvas.axis_x(x, bottom, 0, "ms", 10 if width == WIDE else 5)
    for index, name in enumerate(names):
        canvas.text(left - 8, line_h * index + 20, name, "name", "end")
    for hue, (lane, name, begin, end) in enumerate(spans):
        top, start, stop = line_h * names.index(lane) + 4, x(1e3 * begin), x(1e3 * end)
        title = f"{name} on {lane}: {1e3 * begin:.3f} to {1e3 * end:.3f} ms"
        canvas.rect(start, top, stop - start - 0.6, line_h - 10, f"span c{hue % COLOURS}", title)
    return canvas.render()


def engine_plot(bench: Mapping[str, object] | None, width: int) -> str:
    """Median latencies of the engines side by side; the thin line is from the least run to the 90th percentile."""
    engines = bench["engines"] if bench is not None else None
    if not isinstance(engines, list) or not engines:
        return ""
    row_h, left, right = 30, 104, width - 70
    canvas = Canvas(width, row_h * len(engines) + 4, "Engines side by side")
    x = Scale(0.0, max(float(engine["p90_ms"]) for engine in engines), left, right)
    for index, engine in enumerate(engines):
        y = row_h * index + 4
        p50, low, high = (float(engine[key]) for key in ("p50_ms", "min_ms", "p90_ms"))
        canvas.text(left - 8, y + 15, str(engine["name"]), "strong" if index == 0 else "name", "end")
        canvas.rect(left, y + 2, x(p50) - left, 18, "bar" if index == 0 else "bar without", f"median {p50:.3f} ms")
        canvas.line(x(low), y + 11, x(high), y + 11, "whisker")
        canvas.text(x(high) + 6, y + 15, f"{number(p50)} ms", "tick")
    return canvas.render()
