"""``tune pack``: a job for another machine."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli import arguments as opt
from autotune.cli.parsing import parse_seconds
from autotune.cli.reply import Reply
from schedules.vocabulary.errors import UsageError

pack_app = typer.Typer()


@pack_app.command(epilog="Example: tune pack model.onnx --out model.job.tar.gz --budget 10m")
def pack(
    model: opt.Model,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Archive; default MODEL's stem + '.job.tar.gz'.")
    ] = None,
    budget: Annotated[str, typer.Option(metavar="90s|5m|1m30s", help="Tuning time there.")] = "10m",
    target: Annotated[
        str, typer.Option(metavar="cuda|host", help="What to tune for: that machine's GPU, or its CPU of any kind.")
    ] = "cuda",
    inputs: opt.Inputs = None,
    log: opt.Log = None,
    as_json: opt.Json = False,
) -> Reply:
    """Write a tuning job for another machine. 'tune log import' brings its records back."""
    from autotune.contrib.exchange.pack import EXTRAS
    from autotune.contrib.exchange.pack import pack as write
    from autotune.tuning.existing_log import made_log

    parse_seconds(budget)
    if target not in EXTRAS:
        raise UsageError(f"--target {target}: a job is for one of {', '.join(EXTRAS)}")
    with closing(made_log(log)) as store:
        packed = write(model, store, out or Path(f"{model.stem}.job.tar.gz"), budget, tuple(inputs or ()), target)
    lines = [
        f"{packed.path}: {packed.bytes / 2**20:.1f} MiB, {packed.records} records of the log",
        "there: unpack it, install the packages of constraints.txt, run job/run.sh",
        "back here: tune log import out/records.jsonl",
    ]
    return Reply(lines, {**asdict(packed), "path": str(packed.path)}, as_json)
