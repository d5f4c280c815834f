"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from schedules.errors import UsageError


def _catalogs() -> dict[str, tuple[str, ...]]:
    # NumPy comes with these: some 0.1 s that --help does not need.
    from autotune.measure.evaluator import EVALUATORS
    from costmodels.catalog import COST_MODELS
    from search.allocator_catalog import ALLOCATORS
    from search.catalog import SEARCHERS

    return {"searcher": SEARCHERS, "cost model": COST_MODELS, "allocator": ALLOCATORS, "evaluator": EVALUATORS}


def check_strategies(searcher: str, cost_model: str, allocator: str, evaluator: str) -> None:
    """Refuse unknown names before anything is started.

    Raises:
        UsageError: naming the nearest known name and all of them.
    """
    from costmodels.choices import choose

    names = {"searcher": searcher, "cost model": cost_model, "allocator": allocator, "evaluator": evaluator}
    for kind, known in _catalogs().items():
        choose(kind, names[kind], dict.fromkeys(known))


def _strategy(kind: str, help_text: str) -> Any:
    """The option for a strategy by name."""

    def names() -> list[str]:
        return sorted(_catalogs()[kind])

    return typer.Option(
        f"--{kind.replace(' ', '-')}",
        metavar="NAME",
        help=f"{help_text}; a wrong name lists all.",
        rich_help_panel="Strategies",
        autocompletion=names,
    )


Searcher = Annotated[str, _strategy("searcher", "How configs are proposed")]
CostModel = Annotated[str, _strategy("cost model", "What predicts their speed")]
Allocator = Annotated[str, _strategy("allocator", "Which task gets the next slot")]
Evaluator = Annotated[str, _strategy("evaluator", "When a timing is sure")]

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX file.", show_default=False)]
ArtifactFolder = Annotated[
    Path, typer.Argument(metavar="ARTIFACT", help="Artifact directory made by 'tune run'.", show_default=False)
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Artifact directory; default MODEL's stem + '.tuned'.")
]
Threads = Annotated[
    int | None, typer.Option("--threads", metavar="N", help="Threads kernels run on; default every usable core.")
]
Target = Annotated[
    str, typer.Option("--target", metavar="host|JSON", help='host, or JSON that lowers it, such as {"isa": "avx2"}.')
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input", metavar="NAME:1x3x224x224", help="Shape of an input that the file leaves open; repeatable."
    ),
]
Log = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="PATH|URL",
        envvar="TUNE_LOG",
        help="Tuning log: a file or a postgresql:// URL; default the user's.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Of every random choice.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")


def parse_seconds(text: str, flag: str = "--budget") -> float:
    """``90s``, ``5m``, ``1m30s``, ``1h``, or plain seconds.

    Raises:
        UsageError: if the text is none of these, or zero.
    """
    try:
        seconds = float(text)
    except ValueError:
        match = _DURATION.fullmatch(text)
        hours, minutes, rest = match.groups(default="0") if match and text else ("0", "0", "0")
        seconds = 3600 * int(hours) + 60 * int(minutes) + float(rest)
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{flag} {text!r} is not a time above zero; write for example 90s, 5m or 1m30s")
    return seconds


def parse_target(text: str) -> dict[str, Any]:
    """``host`` or a JSON object with ``isa`` and ``threads`` → those fields.

    Raises:
        UsageError: for anything else.
    """
    if text == "host":
        return {}
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or not set(fields) <= {"isa", "threads"}:
        raise UsageError(
            f"""--target {text!r} is not 'host' or JSON with "isa" and "threads", such as {{"isa": "avx2"}}"""
        )
    return fields


def split_names(text: str) -> list[str]:
    """``a,b`` → ["a", "b"]."""
    return [name.strip() for name in text.split(",") if name.strip()]


def common(target: str, threads: int | None, inputs: list[str] | None, log: str | None) -> dict[str, Any]:
    """The fields of ``Options`` that every command on a model has."""
    from autotune.importer.shapes import parse_input  # loads onnx, which --help does not need

    fields = parse_target(target)
    return {
        "isa": fields.get("isa"),
        "threads": threads if threads is not None else fields.get("threads"),
        "inputs": dict(parse_input(text) for text in inputs or ()),
        "log": log,
    }
