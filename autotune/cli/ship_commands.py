"""``tune report`` and ``tune export``: an artifact for people to read, and for others to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli import arguments as opt
from autotune.cli.reply import Reply
from schedules.errors import UsageError

ship_app = typer.Typer()


@ship_app.command(epilog="Example: tune report model.tuned --out report.html")
def report(
    artifact: opt.ArtifactFolder,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="HTML file to write.")] = Path("report.html"),
    bench: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Output of 'tune bench --json'; default the last bench of the artifact."),
    ] = None,
    as_json: opt.Json = False,
) -> Reply:
    """Write one HTML file, readable offline: how the artifact was tuned, how fast it is, and where its time goes."""
    from autotune.report.page import write_report

    told = None if bench is None else _read_bench(bench)
    written = write_report(artifact, out, told)
    size = written.stat().st_size
    return Reply([f"{written}: {size / 1e3:.0f} KB"], {"report": str(written), "bytes": size}, as_json)


@ship_app.command(epilog="Example: tune export model.tuned --out exported")
def export(
    artifact: opt.ArtifactFolder,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write; new or empty.")] = Path(
        "exported"
    ),
    as_json: opt.Json = False,
) -> Reply:
    """Write a folder that plain TVM runs without this program, with the few lines of Python that do it."""
    from autotune.exchange.export import RUNNER
    from autotune.exchange.export import export as write

    written = write(artifact, out)
    names = sorted(path.name for path in written.iterdir())
    return Reply(
        [f"{written}: {', '.join(names)}; {RUNNER} says how"], {"folder": str(written), "files": names}, as_json
    )


def explain_kernels(artifact: Path, task: str | None, emit: str | None, as_json: bool) -> Reply:
    """``tune kernels --explain``."""
    from autotune.report.bottlenecks import explain, explain_lines, summary
    from autotune.report.facts import read_facts

    if task is not None or emit is not None:
        raise UsageError("--explain is about the whole artifact; leave out --task and --emit")
    facts = read_facts(artifact)
    slowest = [each.to_data() for each in explain(facts)]
    data = {"artifact": str(artifact), "summary": summary(facts), "slowest": slowest}
    return Reply(explain_lines(facts), data, as_json)


def _read_bench(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        told = f"--bench {path} cannot be read ({error.strerror}); give what 'tune bench --json' printed"
        raise UsageError(told) from error
    except ValueError as error:
        raise UsageError(f"--bench {path} is not JSON; give what 'tune bench --json' printed") from error
    if not isinstance(data, dict) or not {"engines", "speedup", "threads", "rounds"} <= set(data):
        raise UsageError(f"--bench {path} is no bench; give what 'tune bench --json' printed")
    return data
