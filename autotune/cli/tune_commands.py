"""``tune run`` and ``tune build``: from a model to an artifact."""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from autotune.cli import arguments as opt
from autotune.cli import text as cli_text
from autotune.cli.model_request import BUILD, ModelRequest
from autotune.cli.reply import DONE, INTERRUPTED, Reply
from schedules.vocabulary.errors import AutotuneError

if TYPE_CHECKING:  # loads TVM
    from autotune.events import Observer
    from autotune.tuning.result import Result

tune_app = typer.Typer()
logger = logging.getLogger(__name__)

IN_TURN_ROUNDS = 10
"""Most rounds in which a finished artifact and ONNX Runtime are timed in turn: some ten seconds."""


@tune_app.command(epilog="Example: tune run model.onnx --budget 90s --out model.tuned")
@opt.taking(ModelRequest)
def run(request: ModelRequest) -> Reply:
    """Tune, build and verify a model. Run it again to continue: nothing is measured twice.

    Several models share one budget, so that the weighted sum of their latencies falls fastest. Common kernels are
    tuned once.
    """
    return _tune(request)


@tune_app.command(epilog="Example: tune build model.onnx --log team.db --out model.tuned")
@opt.taking(ModelRequest, *BUILD)
def build(request: ModelRequest) -> Reply:
    """Build and verify without measuring. Kernels come from the log; a missing record is an error."""
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
        progress = stack.enter_context(Progress(Console(stderr=True), request.quiet))
        observers: list[Observer] = [progress]
        if written is not None:
            observers.append(written)
        models = [request.model, *(request.more or ())]
        result = tune(models, options, everyone(*observers))
        in_turn = _in_turn(result, request.model, progress) if options.peer and not request.more else None
        data = {**result.to_data(), "in_turn": in_turn}
        if written is not None:
            written.write({"event": "result", **data})
    code = INTERRUPTED if result.interrupted else DONE
    explained = [line for path in _explained(result) if request.explain for line in _explanation(path)]
    return Reply([*explained, *cli_text.run_lines(result, in_turn)], data, request.as_json, code=code)


def _in_turn(result: Result, model: Path, observe: Observer) -> dict[str, Any] | None:
    """Time the artifact and ONNX Runtime in turn, as ``tune bench --json`` states it; None where that is not possible.

    An artifact that was not built anew keeps its last comparison.
    """
    from autotune.artifact.manifest import BENCH, attachment
    from autotune.events import PhaseBegan
    from autotune.tuning.tune import is_repeated

    if result.interrupted or result.verified is None or result.latency_ms.get("tuned") is None:
        return None
    try:
        if is_repeated(result):
            kept = attachment(result.artifact, BENCH)
            return None if kept is None else dict(json.loads(kept))
        from autotune.validation.bench import bench, keep_bench  # loads ONNX

        observe(PhaseBegan("compare with ONNX Runtime"))
        compared = bench(result.artifact, model_path=model, most_rounds=IN_TURN_ROUNDS)
    except (AutotuneError, KeyboardInterrupt) as error:  # the run itself is done, and is reported
        logger.debug("the artifact and ONNX Runtime were not timed in turn: %s", error)
        return None
    keep_bench(compared)
    return compared.to_data()


def _explanation(artifact: Path) -> list[str]:
    """Return the limits of the slowest kernels of ``artifact``, in words."""
    from autotune.report.bottlenecks import explain_lines  # these load TVM
    from autotune.report.facts import read_facts

    return explain_lines(read_facts(artifact))


def _explained(result: Result) -> list[Path]:
    """The artifacts that ``--explain`` is about: each of several models, of several sets of shapes the first one's."""
    if result.weights:
        return [artifact for part in result.parts for artifact in _explained(part)]
    return [result.parts[0].artifact if result.parts and not result.fallback_partitions else result.artifact]
