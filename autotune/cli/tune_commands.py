"""``tune run`` and ``tune build``: from a model to an artifact."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import arguments as opt
from autotune.cli import text as cli_text
from autotune.cli.reply import DONE, INTERRUPTED, Reply
from autotune.options import EFFORTS, Options

if TYPE_CHECKING:  # loads TVM
    from autotune.events import Observer
    from autotune.tuning.result import Result

tune_app = typer.Typer()


@dataclass(frozen=True)
class RunRequest:
    """The arguments and options of ``tune run``."""

    model: opt.Model
    out: opt.Out = None
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="90s|5m|1m30s", help="Tuning time, earlier runs of the log included; default by --effort."
        ),
    ] = None
    trials: Annotated[int | None, typer.Option(metavar="N", help="Most measured trials.")] = None
    until: opt.Until = None
    effort: Annotated[
        str,
        typer.Option(
            metavar="|".join(EFFORTS),
            help="Budget: " + ", ".join(f"{name} {seconds:g} s" for name, seconds in EFFORTS.items()) + ".",
        ),
    ] = Options.effort
    target: opt.Target = "host"
    device: opt.Device = True
    threads: opt.Threads = None
    inputs: opt.Inputs = None
    log: opt.Log = None
    seed: opt.Seed = Options.seed
    searcher: opt.Searcher = Options.searcher
    cost_model: opt.CostModel = Options.cost_model
    allocator: opt.Allocator = Options.allocator
    evaluator: opt.Evaluator = Options.evaluator
    lanes: opt.Lanes = Options.lanes
    cluster: opt.Cluster = None
    rpc: opt.Rpc = None
    fallback: opt.Fallback = None
    frozen: Annotated[bool, typer.Option("--frozen", help="Measure nothing; a missing record is an error.")] = False
    peer: Annotated[
        bool, typer.Option("--peer/--no-peer", help="Time ONNX Runtime first, if it is installed; not with --quiet.")
    ] = True
    explain: opt.Explain = False
    events: opt.Events = None
    as_json: opt.Json = False
    quiet: opt.Quiet = False

    def options(self) -> Options:
        """What the tuner is asked for."""
        return _options(
            self,
            budget_s=None if self.budget is None else opt.parse_seconds(self.budget),
            until=None if self.until is None else opt.parse_share(self.until, "--until"),
            searcher=opt.choose_strategy("searcher", self.searcher),
            cost_model=opt.choose_strategy("cost model", self.cost_model),
            allocator=opt.choose_strategy("allocator", self.allocator),
            evaluator=opt.choose_strategy("evaluator", self.evaluator),
            peer=self.peer and not self.quiet and not self.frozen,
        )


@dataclass(frozen=True)
class BuildRequest:
    """The arguments and options of ``tune build``."""

    model: opt.Model
    out: opt.Out = None
    target: opt.Target = "host"
    device: opt.Device = True
    threads: opt.Threads = None
    inputs: opt.Inputs = None
    log: opt.Log = None
    seed: opt.Seed = Options.seed
    lanes: opt.Lanes = Options.lanes
    fallback: opt.Fallback = None
    as_json: opt.Json = False
    quiet: opt.Quiet = False

    def options(self) -> Options:
        """What the builder is asked for."""
        return _options(self, frozen=True)


def _options(request: RunRequest | BuildRequest, **read: Any) -> Options:
    """Options of the request's fields of the same name, but for those that had to be ``read`` first.

    Raises:
        UsageError: for a value that cannot be read.
    """
    same = {item.name: getattr(request, item.name) for item in fields(Options) if hasattr(request, item.name)}
    common = opt.common(request.target, request.threads, request.inputs, request.log)
    return Options(**{**same, **common, **read})


@tune_app.command(epilog="Example: tune run model.onnx --budget 90s --out model.tuned")
@opt.taking(RunRequest)
def run(request: RunRequest) -> Reply:
    """Tune, build and verify. Run again to go on: what was measured is not measured twice."""
    return _tuned(request, request.explain, request.events)


@tune_app.command(epilog="Example: tune build model.onnx --log team.db --out model.tuned")
@opt.taking(BuildRequest)
def build(request: BuildRequest) -> Reply:
    """Build and verify from the log only: nothing is measured, and a missing record is an error."""
    return _tuned(request)


def _tuned(request: RunRequest | BuildRequest, explain: bool = False, events: Path | None = None) -> Reply:
    from rich.console import Console

    from autotune.events import everyone
    from autotune.report.bottlenecks import explain_lines
    from autotune.report.event_file import EventFile
    from autotune.report.facts import read_facts
    from autotune.report.progress import Progress
    from autotune.tuning.tune import tune

    options = request.options()
    with ExitStack() as stack:
        written = None if events is None else stack.enter_context(EventFile(events))
        observers: list[Observer] = [stack.enter_context(Progress(Console(stderr=True), request.quiet))]
        if written is not None:
            observers.append(written)
        result = tune(request.model, options, everyone(*observers))
        if written is not None:
            written.write({"event": "result", **result.to_data()})
    code = INTERRUPTED if result.interrupted else DONE
    explained = explain_lines(read_facts(_explained(result))) if explain else []
    return Reply([*cli_text.run_lines(result), *explained], result.to_data(), request.as_json, code=code)


def _explained(result: Result) -> Path:
    """The artifact that ``--explain`` is about: of several sets of shapes the first one's."""
    return result.parts[0].artifact if result.parts and not result.fallback_partitions else result.artifact
