"""``tune pack``: everything that another machine needs to tune a model later, in one archive.

    model.onnx          the model
    records.jsonl       what the log knows, if it knows anything
    constraints.txt     the exact versions that this machine has
    sources/            this program
    run.sh              tunes, builds, verifies, and writes out/records.jsonl

The machine that runs it needs Python with the packages of ``constraints.txt``, and a CUDA driver where it is to tune
for its GPU; where for its CPU, that may be of another architecture. Its records merge back
with ``tune log import out/records.jsonl``.
"""

from __future__ import annotations

import io
import shlex
import tarfile
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import onnx
from packaging.requirements import Requirement

from autotune.importer.guarded_import import load_checked
from autotune.importer.onnx_model.shape_sets import shape_sets
from autotune.versions import DISTRIBUTION, installed
from schedules.vocabulary.errors import ArtifactError, UsageError
from tuning_logs.durable import replacing
from tuning_logs.exchange import export_log
from tuning_logs.sql_store import TuningLog

ROOMS = ("autotune", "search", "costmodels", "schedules", "tuning_logs")
REFERENCE = "onnxruntime"
"""The engine that the job's artifact is compared with."""
EXTRAS = {"cuda": ("", "cuda"), "host": ("",)}
"""Kind of target → extras of our package that its job needs; the empty one is what every installation needs."""

RUN = """#!/usr/bin/env bash
# Tunes {model} for {device}. Needs Python with the packages of constraints.txt:
#     python3 -m pip install -r constraints.txt
# Afterwards out/records.jsonl is what to bring back: tune log import out/records.jsonl
set -euo pipefail
cd "$(dirname "${{BASH_SOURCE[0]}}")"
export PYTHONPATH="$PWD/sources${{PYTHONPATH:+:$PYTHONPATH}}"
python=${{PYTHON:-python3}}
mkdir -p out
[ ! -s records.jsonl ] || "$python" -m autotune log import records.jsonl --log out/tuning.db
"$python" -m autotune run model.onnx --target {target} --log out/tuning.db --out out/model.tuned {options} --json \\
    > out/result.json
"$python" -m autotune log export out/records.jsonl --log out/tuning.db
cat out/result.json
"""


@dataclass(frozen=True)
class Packed:
    """The files that were written.

    Attributes:
        records: of the log that travel along.
        bytes: size of the archive.
    """

    path: Path
    records: int
    bytes: int


def pack(
    model: Path, log: TuningLog, out: Path, budget: str, inputs: tuple[str, ...] = (), target: str = "cuda"
) -> Packed:
    """Write the job for ``model`` to ``out`` (.tar.gz).

    Args:
        budget: of the run there, as ``tune run --budget`` takes it.
        inputs: ``--input`` options of the run.
        target: cuda or host: that machine's GPU, or its CPU.

    Raises:
        ModelError: if the model cannot be read.
        UsageError: if ``inputs`` does not fit it, or asks for several sets of shapes.
        ArtifactError: if the archive cannot be written.
    """
    sets = shape_sets(inputs)
    if len(sets) > 1 and target == "cuda":
        raise UsageError(f"a CUDA artifact serves one set of shapes, not {len(sets)}; give every --input once")
    loaded = load_checked(model, sets[0] if sets else {})
    words = ["--budget", budget, *(part for text in inputs for part in ("--input", text))]
    device = "this machine's GPU, with a CUDA driver" if target == "cuda" else "this machine's CPU"
    script = RUN.format(model=model.name, options=shlex.join(words), target=target, device=device)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tune-pack-") as name,
            replacing(out) as stream,
            tarfile.open(fileobj=stream, mode="w:gz") as archive,
        ):
            records = Path(name) / "records.jsonl"
            count = export_log(log, records)
            archive.add(records, "job/records.jsonl")
            _add(archive, "job/model.onnx", loaded.SerializeToString())
            _add(archive, "job/constraints.txt", _constraints(EXTRAS[target]).encode())
            _add(archive, "job/run.sh", script.encode(), mode=0o755)
            for room in ROOMS:
                archive.add(_home(room), f"job/sources/{room}", filter=_source)
    except (OSError, onnx.onnx_cpp2py_export.checker.ValidationError, ValueError) as error:
        raise ArtifactError(f"{out} cannot be written ({error}); name another --out") from error
    return Packed(out, count, out.stat().st_size)


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def _home(room: str) -> Path:
    return Path(__file__).resolve().parents[3] / room


def _source(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in entry.name else entry


def _constraints(extras: tuple[str, ...]) -> str:
    """The versions here of what the job needs; what is not installed here is left to pip."""
    required = [Requirement(text) for text in metadata.requires(DISTRIBUTION) or ()]
    names = [
        requirement.name
        for requirement in required
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
    ]
    versions = {name: installed(name) for name in (*names, REFERENCE)}
    return "".join(f"{name}=={version}\n" if version else f"{name}\n" for name, version in versions.items())
