"""``tune report`` and ``tune export``: an artifact for people to read, and for other programs to run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli import arguments as opt
from autotune.cli.reply import Reply
from schedules.vocabulary.bounded import MOST_DEPTH, parsed_json
from schedules.vocabulary.choices import choose
from schedules.vocabulary.errors import UsageError

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
    """Write an HTML report of an artifact.

    One file, readable offline: how the artifact was tuned, how fast it is, and where its time goes.
    """
    from autotune.report.page import write_report

    written = write_report(artifact, out, None if bench is None else _read_bench(bench))
    size = written.stat().st_size
    return Reply([f"{written}: {size / 1e3:.0f} KB"], {"report": str(written), "bytes": size}, as_json)


TVM, C = "tvm", "c"


@report_app.command(epilog="Example: tune export model.tuned --out exported --format c")
def export(
    artifact: opt.ArtifactFolder,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write; new or empty.")] = Path(
        "exported"
    ),
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="tvm: for plain TVM, with the few lines of Python that run it. c: a C library that needs neither "
            "Python nor TVM, with header, weights, build files, examples and a self-test.",
        ),
    ] = TVM,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the C library and its functions.", show_default="the artifact's"),
    ] = None,
    as_json: opt.Json = False,
) -> Reply:
    """Write an artifact as a C library or for TVM. The result runs without this program."""
    write = choose("--format", form, {TVM: _export_tvm, C: _export_c})
    written, how = write(artifact, out, name)
    names = sorted(str(path.relative_to(written)) for path in written.rglob("*") if path.is_file())
    return Reply([f"{written}: {', '.join(names)}; {how}"], {"folder": str(written), "files": names}, as_json)


def _export_tvm(artifact: Path, out: Path, name: str | None) -> tuple[Path, str]:
    from autotune.exchange.export import RUNNER, export

    if name is not None:
        raise UsageError(f"--name {name} is for --format {C}; leave it out")
    return export(artifact, out), f"{RUNNER} says how"


def _export_c(artifact: Path, out: Path, name: str | None) -> tuple[Path, str]:
    from autotune.exchange.export_c import export_c

    return export_c(artifact, out, name), "selftest/selftest runs what was recorded"


def _read_bench(path: Path) -> dict[str, Any]:
    wanted = "give what 'tune bench --json' printed"
    try:
        data = parsed_json(path.read_text(), MOST_DEPTH)
    except OSError as error:
        raise UsageError(f"--bench {path} cannot be read ({error.strerror}); {wanted}") from error
    except ValueError as error:
        raise UsageError(f"--bench {path} is not JSON; {wanted}") from error
    if not isinstance(data, dict) or not {"engines", "speedup", "threads", "rounds"} <= set(data):
        raise UsageError(f"--bench {path} is no bench; {wanted}")
    return data
