"""``tune bench``, ``tasks``, ``kernels``, ``lanes``, ``devices`` and ``verify``: look at what is there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import arguments as opt
from autotune.cli import text as cli_text
from autotune.cli.model_request import LOOK_UP, ModelRequest
from autotune.cli.parsing import parse_count, parse_seconds, split_names
from autotune.cli.reply import DONE, UNVERIFIED, Reply
from autotune.runtime.serve_options import ServeOptions
from schedules.vocabulary.errors import ModelError, UsageError

if TYPE_CHECKING:  # loads TVM
    from autotune.validation.verdict import Verdict

inspect_app = typer.Typer()

Against = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="Engines and other artifacts of the model to compare with, separated by commas. Engines: onnxruntime, "
        "onnxruntime-best (fastest of a few settings), openvino (fp32), openvino-default (its own precision), "
        "torch.compile (needs a .pt2 file).",
    ),
]


@inspect_app.command(epilog="Example: tune bench model.tuned --against onnxruntime,openvino --rounds 200")
def bench(
    artifact: opt.ArtifactFolder,
    against: Against = "onnxruntime",
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL", help="Its ONNX file; default next to the artifact, in this folder, or where it was tuned."
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Turns of every engine; default until each ratio is known to 1 %, at most 30; with --clients 5.",
        ),
    ] = None,
    seed: opt.Seed = 0,
    clients: Annotated[
        str | None,
        typer.Option(metavar="N[,M…]", help="Measure requests per second with these numbers of clients."),
    ] = None,
    streams: Annotated[
        int | None, typer.Option(metavar="N", help="With --clients: our streams; default as tuned.")
    ] = None,
    max_batch: Annotated[
        int, typer.Option(metavar="N", help="With --clients: most rows joined into one run.")
    ] = ServeOptions.max_batch,
    max_wait: Annotated[
        str, typer.Option(metavar="2ms", help="With --clients: how long a request waits to be joined.")
    ] = f"{1e3 * ServeOptions.max_wait_s:g}ms",
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> Reply:
    """Time an artifact against other engines.

    They run in turn, on the same threads and inputs, each in its own process.
    """
    from rich.console import Console

    from autotune.report.progress import Steps
    from autotune.validation.bench import bench as run_bench
    from autotune.validation.bench import keep_bench
    from autotune.validation.bench_clients import bench_clients

    if clients is not None:
        counts = [parse_count(text, "--clients") for text in split_names(clients)]
        serve = ServeOptions(streams, max_batch=max_batch, max_wait_s=parse_seconds(max_wait, "--max-wait"))
        with Steps(Console(stderr=True), quiet) as steps:
            served = bench_clients(
                artifact, counts, split_names(against), serve, model, 5 if rounds is None else rounds, steps
            )
        return Reply(cli_text.clients_lines(served), served.to_data(), as_json)
    with Steps(Console(stderr=True), quiet) as steps:
        result = run_bench(artifact, split_names(against), model, rounds, seed, steps)
    keep_bench(result)
    return Reply(cli_text.bench_lines(result), result.to_data(), as_json)


@inspect_app.command(epilog="Example: tune tasks model.onnx --threads 2")
@opt.taking(ModelRequest, *LOOK_UP)
def tasks(request: ModelRequest) -> Reply:
    """List a model's tasks and best kernels. It shows work, bounds and the source of each record."""
    from autotune.report.inspect_tasks import report_tasks

    report = report_tasks(request.model, request.options())
    return Reply(cli_text.task_lines(report), report.to_data(), request.as_json)


@inspect_app.command(epilog="Example: tune kernels model.tuned --task fused_conv2d_add_relu --emit asm")
def kernels(
    artifact: opt.ArtifactFolder,
    task: Annotated[
        str | None, typer.Option(metavar="KEY", help="Key, start of a key, or name of one task; default all.")
    ] = None,
    emit: Annotated[
        str | None,
        typer.Option(metavar="tir|llvm|asm|loop|cuda|ptx", help="Print their code instead of their configs."),
    ] = None,
    explain: opt.Explain = False,
    as_json: opt.Json = False,
) -> Reply:
    """Show an artifact's kernels or their code. Code is as scheduled, as LLVM sees it, or machine code."""
    from autotune.report.inspect_kernels import report_kernels, report_memory

    if explain:
        if task is not None or emit is not None:
            raise UsageError("--explain is about the whole artifact; leave out --task and --emit")
        return _explain_kernels(artifact, as_json)
    reports = report_kernels(artifact, task, emit)
    memory = report_memory(artifact)
    data = {"artifact": str(artifact), "emit": emit, **memory, "kernels": [kernel.to_data() for kernel in reports]}
    lines = cli_text.kernel_lines(reports)
    return Reply(lines if task or emit else [*lines, cli_text.memory_line(memory)], data, as_json)


def _explain_kernels(artifact: Path, as_json: bool) -> Reply:
    from autotune.report.bottlenecks import explain, explain_lines, summary
    from autotune.report.facts import read_facts

    facts = read_facts(artifact)
    slowest = [bottleneck.to_data() for bottleneck in explain(facts)]
    data = {"artifact": str(artifact), "summary": summary(facts), "slowest": slowest}
    return Reply(explain_lines(facts), data, as_json)


@inspect_app.command(epilog="Example: tune lanes model.tuned")
def lanes(artifact: opt.ArtifactFolder, as_json: opt.Json = False) -> Reply:
    """Show what runs on which lane, and when. Times are predicted ones, and measured now."""
    from autotune.report.inspect_lanes import report_lanes

    report = report_lanes(artifact)
    return Reply(cli_text.lane_lines(report), report.to_data(), as_json)


@inspect_app.command(epilog="Example: tune devices --json")
def devices(as_json: opt.Json = False) -> Reply:
    """Show what kernels may use on this machine.

    It shows instruction sets, threads, caches, measured peaks and GPUs.
    """
    from autotune.host.devices import report_devices

    report = report_devices()
    return Reply(report.lines, report.data, as_json)


@inspect_app.command(epilog="Example: tune verify model.tuned model.onnx --bisect")
def verify(
    artifact: opt.ArtifactFolder,
    model: opt.Model,
    seed: opt.Seed = 0,
    bisect: Annotated[
        bool,
        typer.Option("--bisect", help="Also check every kernel alone and name the first wrong one."),
    ] = False,
    as_json: opt.Json = False,
) -> Reply:
    """Compare outputs with ONNX Runtime's. Inputs are random."""
    from autotune.artifact.composite import model_of, read_composite
    from autotune.artifact.directory import read_artifact
    from autotune.artifact.manifest import KERNELS, SEGMENTS, kind_of
    from autotune.builder.open_batch import CHECKED_ROWS, References, check_rows
    from autotune.validation.bisect import bisect as find_culprit
    from autotune.validation.verify import complaint as wrong_outputs

    kind = kind_of(artifact)
    parts = [artifact] if kind in (KERNELS, SEGMENTS) else [part.path for part in read_composite(artifact).parts]
    lines: list[str] = []
    complaints: list[str] = []
    data: list[dict[str, Any]] = []
    for part in parts:
        verdict, complaint = _compared(part, model, seed, foreign=kind == SEGMENTS)
        lines.append(cli_text.verdict_line(verdict))
        complaints += complaint
        data.append({**asdict(verdict), "artifact": str(part)})
        if kind == KERNELS and (opened := read_artifact(part)).interface is not None:
            rows = check_rows(opened, References(model), seed)
            lines.append(f"{CHECKED_ROWS} rows: {cli_text.verdict_line(rows)}")
            complaints += [] if rows.passed else [wrong_outputs(part, rows, seed)]
            data[-1]["rows"] = asdict(rows)
        if bisect and kind != SEGMENTS:
            culprit = find_culprit(part, model, seed)
            data[-1]["culprit"] = None if culprit is None else asdict(culprit)
            lines.append("every kernel is right" if culprit is None else culprit.line())
            if culprit is not None and verdict.passed:
                complaints.append(f"{part}: a kernel is wrong though these outputs do not show it; build it again")
    tuned = read_composite(artifact).tuned if bisect and kind == SEGMENTS else ()
    if tuned:
        first = tuned[0].path
        lines.append(
            "an artifact with fallback partitions is not bisected as a whole; give its tuned segments and their "
            f"models, such as {first} {model_of(first)}"
        )
    whole = data[0] if len(parts) == 1 and parts[0] == artifact else {"passed": not complaints, "parts": data}
    return Reply(lines, whole, as_json, complaints, UNVERIFIED if complaints else DONE)


def _compared(artifact: Path, model: Path, seed: int, foreign: bool) -> tuple[Verdict, list[str]]:
    """The verdict, and the complaint if there is one.

    Args:
        foreign: the model may hold operators that TVM cannot express.
    """
    from autotune.importer.guarded_import import load_checked
    from autotune.runtime.session import InferenceSession
    from autotune.validation.reference_runs import Reference
    from autotune.validation.verify import compare_session, complaint, session_specs

    session = InferenceSession(artifact)
    shapes = {spec.name: spec.shape for spec in session_specs(session) if spec.shape}
    try:
        loaded = load_checked(model, shapes, foreign=foreign)
    except UsageError as error:  # it speaks of --input, which this command does not have
        inputs = ", ".join(f"{name}: {'x'.join(map(str, shape))}" for name, shape in shapes.items())
        raise ModelError(
            f"{model} does not take the inputs of {artifact} ({inputs}); give the model it was built from"
        ) from error
    verdict = compare_session(session, Reference(loaded), seed)
    return verdict, [] if verdict.passed else [complaint(artifact, verdict, seed)]
