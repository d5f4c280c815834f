"""``tune report``: one HTML file that needs no network, no script and no other file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from autotune import __version__
from autotune.options import Options
from autotune.report.bottlenecks import explain, summary
from autotune.report.decisions import decisions
from autotune.report.facts import Facts, read_facts
from autotune.report.plain_text import day, escaped_lines
from autotune.report.plots import (
    NARROW,
    WIDE,
    colours,
    decision_plot,
    engine_plot,
    lane_plot,
    latency_plot,
    roofline_plot,
    timeline_plot,
)
from autotune.tuning.run_history import Run
from schedules.vocabulary.errors import ArtifactError
from tuning_logs.durable import write_file

TEMPLATE = "report.html.j2"

REPEATED = (
    "budget_s",
    "trials",
    "effort",
    "until",
    "isa",
    "threads",
    "seed",
    "searcher",
    "cost_model",
    "allocator",
    "evaluator",
    "lanes",
    "precision",
    "fallback",
)
"""Options of a run that its command is written with, in this order."""

FLAGS = {"budget_s": "--budget", "isa": "--target"}
"""Options → flags of ``tune run`` with another name."""

VALUES: Mapping[str, Callable[[Any], str]] = {
    "budget_s": lambda seconds: f"{seconds:g}s",
    "until": lambda share: f"{100 * share:g}%" if share else "never",
    "isa": lambda isa: json.dumps({"isa": isa}),
}
"""Options whose flag takes the value in another form."""


def write_report(artifact: Path, out: Path, bench: Mapping[str, Any] | None = None) -> Path:
    """Write the report of ``artifact`` to ``out``.

    Args:
        bench: as ``tune bench --json``; None takes what ``tune bench`` left in the artifact.

    Raises:
        ArtifactError: if the artifact cannot be read, or ``out`` not be written.
    """
    page = render(read_facts(artifact, bench))
    try:
        write_file(out, page.encode())
    except OSError as error:
        raise ArtifactError(f"cannot write {out} ({error.strerror}); name another --out") from error
    return out


def render(facts: Facts) -> str:
    """The report as HTML text."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_printable
    )
    environment.filters["day"] = day
    decided = decisions(facts)
    return environment.get_template(TEMPLATE).render(
        facts=facts,
        model=facts.title,
        last=facts.runs[-1] if facts.runs else None,
        latency=_both(lambda width: latency_plot(facts, width)) if facts.trials else "",
        roofline=_both(lambda width: roofline_plot(facts, width)),
        gains=_both(lambda width: decision_plot(decided, width)),
        kernels=_both(lambda width: timeline_plot(facts, width)),
        lanes=_both(lambda width: lane_plot(facts, width)),
        engines=_both(lambda width: engine_plot(facts.bench, width)),
        summary=summary(facts),
        explained=explain(facts),
        hues=colours(facts),
        errors={} if facts.precision is None else facts.precision.errors(),
        reproduce=[command(facts, run) for run in facts.runs],
        version=__version__,
    )


def command(facts: Facts, run: Run) -> str:
    """The command that asks for what ``run`` was asked for."""
    words = ["tune", "run", facts.source]
    for name in REPEATED:
        value = run.options.get(name)
        unused = name == "effort" and value == Options.effort and run.options.get("budget_s") is not None
        usual = name == "lanes" and value == Options.lanes
        if value is not None and not (unused or usual):
            words += [FLAGS.get(name, f"--{name.replace('_', '-')}"), VALUES.get(name, str)(value)]
    for shape in run.options.get("inputs", ()):
        words += ["--input", shape]
    return shlex.join(words)


def _printable(value: Any) -> Any:
    """Return what an expression of the template puts into the page: foreign text without control characters."""
    return escaped_lines(value) if type(value) is str else value


def _both(draw: Callable[[int], str]) -> Markup:
    """A plot for a wide screen and one for a narrow one; the page's style shows the one that fits."""
    wide, narrow = draw(WIDE), draw(NARROW)
    if not wide:
        return Markup("")
    return Markup('<div class="wide">{}</div><div class="narrow">{}</div>').format(Markup(wide), Markup(narrow))
