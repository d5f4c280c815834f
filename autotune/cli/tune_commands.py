"""``tune run`` and ``tune build``: from a model to an artifact."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from autotune.cli import arguments as opt
from autotune.cli import text as cli_text
from autotune.cli.model_request import BUILD, ModelRequest
from autotune.cli.reply import DONE, INTERRUPTED, Reply

if TYPE_CHECKING:  # loads TVM
    from autotune.events import Observer
    from autotune.tuning.result import Result

tune_app = typer.Typer()


@tune_app.command(epilog="Example: tune run model.onnx --budget 90s --out model.tuned")
@opt.taking(ModelRequest)
def run(request: ModelRequest) -> Reply:
    """Tune, build and verify. Run again to go on: what was measured is not measured twice.

    Several models share one budget, so that the weighted sum of their latencies falls fastest; kernels that they have
    in common are tuned once.
    """
    return _tune(request)


@tune_app.command(epilog="Example: tune build model.onnx --log team.db --out model.tuned")
@opt.taking(ModelRequest, *BUILD)
def build(request: ModelRequest) -> Reply:
    """Build and verify from the log only: nothing is measured, and a missing record is an error."""
    return _tune(replace(request, frozen=True))


def _tune(request: ModelRequest) -> Reply:
    from rich.console import Console

    from autotune.events import everyone
    from autotune.report.event_file import EventFile
    from autotune.report.progress import Progress
    from autotune.tuning.tune import tune

    options = request.options()
    with ExitStack() as stack:
        written = None if request.events is None else stack.enter_context(EventFile(request.events))
        observers: list[Observer] = [stack.enter_context(Progress(Console(stderr=True), request.quiet))]
        if written is not None:
            observers.append(written)
        models = [request.model, *(request.more or ())]
        result = tune(models, options, everyone(*observers))
        if written is not None:
            written.write({"event": "result", **result.to_data()})
    code = INTERRUPTED if result.interrupted else DONE
    explained = [line for path in _explained(result) if request.explain for line in _explanation(path)]
    return Reply([*cli_text.run_lines(result), *explained], result.to_data(), request.as_json, code=code)


def _explanation(artifact: Path) -> list[str]:
    """What limits the slowest kernels of ``artifact``, in words."""
    from autotune.report.bottlenecks import explain_lines  # these load TVM
    from autotune.report.facts import read_facts

    return explain_lines(read_facts(artifact))


def _explained(result: Result) -> list[Path]:
    """The artifacts that ``--explain`` is about: each of several models, of several sets of shapes the first one's."""
    if result.weights:
        return [artifact for part in result.parts for artifact in _explained(part)]
    return [result.parts[0].artifact if result.parts and not result.fallback_partitions else result.artifact]
