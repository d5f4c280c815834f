"""The command ``tune``: the only place that prints, exits and reads the environment.

A command returns a ``Reply``; ``main`` prints it. Results go to stdout, progress and logs to stderr.

Imports of what loads TVM are inside the commands: ``tune --help`` answers at once, and TVM is loaded only after the
installed versions were judged (``autotune.versions``).
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import arguments as opt
from autotune.cli import text as cli_text
from autotune.cli.cuda_commands import cuda_app
from autotune.cli.log_commands import log_app
from autotune.cli.replay_command import replay
from autotune.cli.reply import DONE, FAILED, FROZEN, INTERRUPTED, UNVERIFIED, USAGE, Reply
from autotune.cli.ship_commands import explain_kernels, ship_app
from autotune.cli.verify_command import verify
from autotune.options import EFFORTS, Options
from autotune.versions import check_versions, describe
from schedules.errors import AutotuneError, MissingRecordError, UsageError, VerificationError

if TYPE_CHECKING:  # loads TVM
    from autotune.tuning.pipeline import Result

CODES: dict[type[AutotuneError], int] = {UsageError: USAGE, MissingRecordError: FROZEN, VerificationError: UNVERIFIED}
"""Exit codes of errors; any other AutotuneError is FAILED."""

PLAINER = {
    "Input should be a valid integer, unable to parse string as an integer": "it takes a whole number",
}
"""What typer says → what a person would."""

OURS = ("autotune", "search", "costmodels", "schedules", "tuning_logs")

app = typer.Typer(
    name="tune",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Turn an ONNX model into kernels tuned for this machine, and prove that they are right and fast.",
    epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 frozen and something was missing, 4 verification failed, "
    "130 interrupted (the best artifact so far is on disk).",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(describe())
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the versions that matter.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more to stderr.")] = False,
) -> None:
    check_versions()
    if verbose:
        for name in OURS:
            logging.getLogger(name).setLevel(logging.DEBUG)


@app.command(epilog="Example: tune run model.onnx --budget 90s --out model.tuned")
def run(
    model: opt.Model,
    out: opt.Out = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="90s|5m|1m30s", help="Tuning time, earlier runs of the log included; default by --effort."
        ),
    ] = None,
    trials: Annotated[int | None, typer.Option(metavar="N", help="Most measured trials.")] = None,
    until: opt.Until = None,
    effort: Annotated[
        str,
        typer.Option(
            metavar="|".join(EFFORTS),
            help="Budget: " + ", ".join(f"{name} {seconds:g} s" for name, seconds in EFFORTS.items()) + ".",
        ),
    ] = Options.effort,
    target: opt.Target = "host",
    device: opt.Device = True,
    threads: opt.Threads = None,
    inputs: opt.Inputs = None,
    log: opt.Log = None,
    seed: opt.Seed = Options.seed,
    searcher: opt.Searcher = Options.searcher,
    cost_model: opt.CostModel = Options.cost_model,
    allocator: opt.Allocator = Options.allocator,
    evaluator: opt.Evaluator = Options.evaluator,
    lanes: opt.Lanes = Options.lanes,
    cluster: opt.Cluster = None,
    rpc: opt.Rpc = None,
    fallback: opt.Fallback = None,
    frozen: Annotated[bool, typer.Option("--frozen", help="Measure nothing; a missing record is an error.")] = False,
    peer: Annotated[
        bool, typer.Option("--peer/--no-peer", help="Time ONNX Runtime first, if it is installed; not with --quiet.")
    ] = True,
    explain: opt.Explain = False,
    events: opt.Events = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> Reply:
    """Tune, build and verify. Run again to go on: what was measured is not measured twice."""
    opt.check_strategies(searcher, cost_model, allocator, evaluator)
    options = Options(
        out=out,
        budget_s=None if budget is None else opt.parse_seconds(budget),
        trials=trials,
        until=None if until is None else opt.parse_share(until, "--until"),
        effort=effort,
        **opt.common(target, threads, inputs, log),
        seed=seed,
        searcher=searcher,
        cost_model=cost_model,
        allocator=allocator,
        evaluator=evaluator,
        lanes=lanes,
        cluster=cluster,
        rpc=rpc,
        fallback=fallback,
        frozen=frozen,
        device=device,
        peer=peer and not quiet and not frozen,
    )
    return _tune(model, options, as_json, quiet, explain, events)


@app.command(epilog="Example: tune build model.onnx --log team.db --out model.tuned")
def build(
    model: opt.Model,
    out: opt.Out = None,
    target: opt.Target = "host",
    device: opt.Device = True,
    threads: opt.Threads = None,
    inputs: opt.Inputs = None,
    log: opt.Log = None,
    seed: opt.Seed = Options.seed,
    lanes: opt.Lanes = Options.lanes,
    fallback: opt.Fallback = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> Reply:
    """Build and verify from the log only: nothing is measured, and a missing record is an error."""
    common = opt.common(target, threads, inputs, log)
    options = Options(out=out, **common, seed=seed, lanes=lanes, fallback=fallback, frozen=True, device=device)
    return _tune(model, options, as_json, quiet)


def _tune(
    model: Path, options: Options, as_json: bool, quiet: bool, explain: bool = False, events: Path | None = None
) -> Reply:
    from rich.console import Console

    from autotune.events import everyone, ignore
    from autotune.report.bottlenecks import explain_lines
    from autotune.report.event_file import EventFile
    from autotune.report.facts import read_facts
    from autotune.report.progress import Progress
    from autotune.tuning.entry import tune

    with ExitStack() as stack:
        written = None if events is None else stack.enter_context(EventFile(events))
        progress = stack.enter_context(Progress(Console(stderr=True), quiet))
        result = tune(model, options, everyone(progress, written or ignore))
        if written is not None:
            written.write({"event": "result", **result.to_data()})
    code = INTERRUPTED if result.interrupted else DONE
    words = explain_lines(read_facts(_explained(result))) if explain else []
    return Reply([*cli_text.run_lines(result), *words], result.to_data(), as_json, code=code)


def _explained(result: Result) -> Path:
    """The artifact that ``--explain`` is about: of several sets of shapes the first one's."""
    return result.parts[0].artifact if result.parts and not result.islands else result.artifact


@app.command(epilog="Example: tune bench model.tuned --against onnxruntime,openvino --rounds 200")
def bench(
    artifact: opt.ArtifactFolder,
    against: Annotated[
        str, typer.Option(metavar="NAMES", help="Engines to compare with: onnxruntime, openvino or both.")
    ] = "onnxruntime",
    model: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="Its ONNX file; default by name beside the artifact or in this folder."),
    ] = None,
    rounds: Annotated[int, typer.Option(metavar="N", help="Turns of every engine.")] = 30,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> Reply:
    """Time an artifact against other engines: in turn, on the same threads and inputs, each in its own process."""
    from rich.console import Console

    from autotune.report.progress import Steps
    from autotune.validation.bench import bench as run_bench
    from autotune.validation.bench import keep_bench

    with Steps(Console(stderr=True), quiet) as steps:
        result = run_bench(artifact, opt.split_names(against), model, rounds, seed, steps)
    keep_bench(result)
    return Reply(cli_text.bench_lines(result), result.to_data(), as_json)


@app.command(epilog="Example: tune tasks model.onnx --threads 2")
def tasks(
    model: opt.Model,
    target: opt.Target = "host",
    threads: opt.Threads = None,
    inputs: opt.Inputs = None,
    log: opt.Log = None,
    as_json: opt.Json = False,
) -> Reply:
    """List a model's tasks: work, roofline bound, the best known kernel and where that record came from."""
    from autotune.report.inspect_kernels import report_tasks

    report = report_tasks(model, Options(**opt.common(target, threads, inputs, log)))
    return Reply(cli_text.task_lines(report), report.to_data(), as_json)


@app.command(epilog="Example: tune kernels model.tuned --task fused_conv2d_add_relu --emit asm")
def kernels(
    artifact: opt.ArtifactFolder,
    task: Annotated[
        str | None, typer.Option(metavar="KEY", help="Key, beginning of a key, or name of one task; default all.")
    ] = None,
    emit: Annotated[
        str | None,
        typer.Option(metavar="tir|llvm|asm|cuda|ptx", help="Print their code; default a table of their configs."),
    ] = None,
    explain: opt.Explain = False,
    as_json: opt.Json = False,
) -> Reply:
    """Show an artifact's kernels: their configs, or their code as scheduled, as LLVM sees it, or as machine code."""
    from autotune.report.inspect_kernels import report_kernels

    if explain:
        return explain_kernels(artifact, task, emit, as_json)
    found = report_kernels(artifact, task, emit)
    data = {"artifact": str(artifact), "emit": emit, "kernels": [kernel.to_data() for kernel in found]}
    return Reply(cli_text.kernel_lines(found), data, as_json)


@app.command(epilog="Example: tune lanes model.tuned")
def lanes(artifact: opt.ArtifactFolder, as_json: opt.Json = False) -> Reply:
    """Show which subgraph of an artifact runs on which lane, and when: as predicted, and as measured now."""
    from autotune.report.inspect_lanes import report_lanes

    report = report_lanes(artifact)
    return Reply(cli_text.lane_lines(report), report.to_data(), as_json)


@app.command(epilog="Example: tune devices --json")
def devices(as_json: opt.Json = False) -> Reply:
    """Show what kernels may use here: instruction sets, threads, caches, measured peaks, GPUs."""
    from autotune.host.devices import report_devices

    report = report_devices()
    return Reply(report.lines, report.data, as_json)


# What came first is listed first: the commands of every day before the others.
app.command(epilog="Example: tune verify model.tuned model.onnx --bisect")(verify)
app.add_typer(ship_app)
app.add_typer(log_app, name="log")
app.command(epilog="Example: tune replay tests/bench/traces/conv3x3.npz --searcher adaptive,random --seeds 30")(replay)
app.add_typer(cuda_app)


class _Stderr(logging.Handler):
    """Writes to whatever sys.stderr is at the time: a live display takes it over for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def _configure_logging() -> None:
    handler = _Stderr()
    handler.setFormatter(logging.Formatter("tune: %(message)s"))
    for name in OURS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.WARNING)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    _configure_logging()
    try:
        reply = app(None if arguments is None else list(arguments), prog_name="tune", standalone_mode=False)
    except AutotuneError as error:
        return _complain(str(error), next((code for kind, code in CODES.items() if isinstance(error, kind)), FAILED))
    except typer.TyperException as error:
        message = error.format_message().rstrip(".")
        if not message:  # a command group alone: its help was shown
            return error.exit_code
        context = getattr(error, "ctx", None)
        command = "tune" if context is None else context.command_path
        for theirs, ours in PLAINER.items():
            message = message.replace(theirs, ours)
        return _complain(f"{message}; '{command} --help' shows what there is", error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", INTERRUPTED)
    if isinstance(reply, Reply):
        return _print(reply)
    if reply == INTERRUPTED:  # typer turns Ctrl-C into this code
        return _complain("interrupted", INTERRUPTED)
    return int(reply or DONE)


def _complain(text: str, code: int) -> int:
    print("tune:", " ".join(text.split()), file=sys.stderr)
    return code


def _print(reply: Reply) -> int:
    try:
        for line in [json.dumps(reply.data, allow_nan=False)] if reply.as_json else reply.lines:
            print(line)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, head say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    for complaint in reply.complaints:
        _complain(complaint, reply.code)
    return reply.code
