"""``tune report`` and ``tune export``: an artifact for people to read, and for other programs to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli import arguments as opt
from autotune.cli.reply import Reply
from schedules.errors import UsageError

report_app = typer.Typer()


@report_app.command(epilog="Example: tune report model.tuned --out report.html")
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

    written = write_report(artifact, out, None if bench is None else _read_bench(bench))
    size = written.stat().st_size
    return Reply([f"{written}: {size / 1e3:.0f} KB"], {"report": str(written), "bytes": size}, as_json)


@report_app.command(epilog="Example: tune export model.tuned --out exported")
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


def _read_bench(path: Path) -> dict[str, Any]:
    wanted = "give what 'tune bench --json' printed"
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"--bench {path} cannot be read ({error.strerror}); {wanted}") from error
    except ValueError as error:
        raise UsageError(f"--bench {path} is not JSON; {wanted}") from error
    if not isinstance(data, dict) or not {"engines", "speedup", "threads", "rounds"} <= set(data):
        raise UsageError(f"--bench {path} is no bench; {wanted}")
    return data
