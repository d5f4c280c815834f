"""tests/golden/errors.md: every refusal a user of the command line is likely to meet, provoked and written down.

A command here is run as a user would type it, in a folder with a few small files that ``folder`` makes. What it says
and its exit code are copied into the page, so that the page cannot say anything else than the program.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from autotune.cli.main import main
from autotune.cli.reply import DONE
from tests.autotune_tests.tiny import save_tiny

HEAD = """# Errors

Every refusal is one line on stderr, with an exit code: 1 failed, 2 usage, 3 a required record is missing, 4
verification failed. `make docs` provokes each and writes this list; a test compares.

In the commands below, `model.onnx` is a model of one convolution and one matrix product, `open.onnx` has an input
with open sizes, `shapeless.onnx` one of unknown rank, `model.tuned` is an artifact of the first, and `tuning.db` its tuning log.
"""

PROVOCATIONS: Mapping[str, tuple[str, ...]] = {
    "Files that are not there, or are something else": (
        "run none.onnx",
        "run text.onnx",
        "run folder",
        "run cut.onnx",
        "run zeros.onnx",
        "bench none.tuned",
        "bench model.onnx",
        "kernels folder",
        "report none.tuned",
        "verify model.tuned none.onnx",
        "verify model.tuned open.onnx",
        "export none.tuned --format c",
        "log stats --log none.db",
        "log stats --log text.onnx",
        "log stats --log folder",
        "log list --log mysql://host/db",
        "log import none.jsonl --log tuning.db",
        "log merge none.db --log tuning.db",
        "log export folder --log tuning.db",
        "replay none.npz",
        "replay text.onnx",
    ),
    "Models": (
        "run shapeless.onnx",
        "run open.onnx --input data:0x3",
        "run open.onnx --input data:1x3x4",
        "run open.onnx --input dat:1x3",
        "run open.onnx --input data",
        "run open.onnx --input data:axb",
        "run model.onnx --input data:1x16x9x9",
        "run unknown.onnx --input data:1x3",
        "run foreign.onnx --input data:1x3",
    ),
    "Options": (
        "run model.onnx --budget soon",
        "run model.onnx --budget -3",
        "run model.onnx --trials many",
        "run model.onnx --trials -1",
        "run model.onnx --until 130%",
        "run model.onnx --effort ful",
        "run model.onnx --effort instant --budget 10s",
        "run model.onnx --threads 0",
        "run model.onnx --threads 100000",
        "run model.onnx --precision fp8",
        "run model.onnx --precision bf16:99 --effort instant",
        "run model.onnx --precision auto --lanes auto",
        "run model.onnx --precision auto --accuracy 2",
        "run model.onnx --accuracy 1%",
        "run model.onnx --import-memory lots",
        "tasks model.onnx --precision auto",
        "run model.onnx --target hots",
        'run model.onnx --target \'{"isa": "avx3"}\'',
        'run model.onnx --target \'{"cpu": "pentium17", "threads": 1}\' --no-device',
        'run model.onnx --target \'{"kind": "cuda", "arch": "sm_10"}\' --no-device',
        "run model.onnx --lanes gpu",
        "run model.onnx --lanes cpu:9x9",
        "run model.onnx --objective speed",
        "run model.onnx --streams 2",
        "run model.onnx --objective throughput --lanes auto",
        "run model.onnx --fallback openvino",
        "run model.onnx --fallback onnxruntime --objective balanced",
        "run model.onnx --weight model=2",
        "run model.onnx open.onnx --weight other=2 --input data:1x3",
        "run model.onnx --searcher adaptiv",
        "run model.onnx --cost-model best",
        "run model.onnx --allocator none",
        "run model.onnx --evaluator fast",
        "run model.onnx --rpc here",
        "run model.onnx --cluster local --rpc 127.0.0.1:9190:board",
        "run model.onnx --frozen --rpc 127.0.0.1:9190:board",
        'run model.onnx --frozen --log empty.db --target \'{"isa": "avx2"}\'',
        "run model.onnx --nonsense",
        "rnu model.onnx",
    ),
    "Places to write to": (
        "run model.onnx --out folder --effort instant",
        "run model.onnx --log /dev/null/tuning.db",
        "report model.tuned --out none/nowhere/report.html",
        "export model.tuned --out folder",
    ),
    "Artifacts": (
        "verify damaged.tuned model.onnx",
        "verify older.tuned model.onnx",
        "bench changed.tuned",
        "kernels model.tuned --task none",
        "kernels model.tuned --emit wasm",
        "kernels model.tuned --explain --task conv",
        "bench model.tuned --against tensorflow",
        "bench model.tuned --against onnxruntime,onnxruntime",
        "bench model.tuned --rounds 0",
        "bench model.tuned --model open.onnx",
        "export model.tuned --format elf",
        "export model.tuned --format tvm --name fast",
        "export model.tuned --format c --name 3d",
    ),
    "The tuning log": (
        "log show conv --log tuning.db",
        "log show none --log tuning.db",
        "log gc --keep 0 --drop dominated --log tuning.db",
        "log gc --drop everything --log tuning.db",
        "log verify --log damaged.db",
    ),
    "Replays": (
        "replay",
        "replay trace.npz --searcher none",
        "replay trace.npz --near 200%",
        "replay trace.npz --guesses some",
    ),
}
"""Heading → commands below it."""


def folder(place: Path) -> None:
    """Fill ``place`` with the files that ``PROVOCATIONS`` name."""
    save_tiny(place / "model.onnx")
    _opened(place / "open.onnx", "Relu", "")
    _opened(place / "shapeless.onnx", "Relu", "", None)
    _opened(place / "unknown.onnx", "NotAnOperator", "")
    _opened(place / "foreign.onnx", "Frobnicate", "com.example")
    (place / "zeros.onnx").write_bytes(bytes(64))
    (place / "text.onnx").write_text("this is no model\n")
    (place / "cut.onnx").write_bytes((place / "model.onnx").read_bytes()[:1000])
    (place / "folder").mkdir()
    (place / "folder" / "kept.txt").write_text("a file of the user's\n")
    if main(["run", "model.onnx", "--trials", "2", "--threads", "1", "--log", "tuning.db", "--quiet"]) != DONE:
        raise RuntimeError("the artifact that the page needs could not be made")
    for name in ("damaged", "older", "changed"):
        shutil.copytree(place / "model.tuned", place / f"{name}.tuned")
    (place / "damaged.tuned" / "manifest.json").write_text("{")
    manifest = place / "older.tuned" / "manifest.json"
    manifest.write_text(re.sub(r'("format"\s*:\s*)\d+', r"\g<1>1", manifest.read_text()))
    with open(place / "changed.tuned" / "plan.json", "a") as plan:
        plan.write(" ")
    (place / "damaged.db").write_bytes((place / "tuning.db").read_bytes()[:5000] + b"\0" * 9000)
    np.savez(place / "trace.npz", nothing=np.zeros(1))


def _opened(path: Path, kind: str, domain: str, shape: Sequence[str] | None = ("batch", "width")) -> None:
    value = helper.make_tensor_value_info("data", TensorProto.FLOAT, shape)
    result = helper.make_tensor_value_info("result", TensorProto.FLOAT, ["batch", "width"])
    node = helper.make_node(kind, ["data"], ["result"], name="only", domain=domain)
    graph = helper.make_graph([node], "open", [value], [result])
    opsets = [helper.make_opsetid("", 17)] + [helper.make_opsetid(domain, 1)] * bool(domain)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


@contextlib.contextmanager
def inside(place: Path) -> Iterator[None]:
    """Work in ``place``, with a log and a cache of its own and a terminal of 80 columns."""
    before, kept = Path.cwd(), dict(os.environ)
    os.environ.update(XDG_DATA_HOME=str(place / "data"), XDG_CACHE_HOME=str(place / "cache"), COLUMNS="80")
    os.environ.pop("TUNE_LOG", None)
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(kept)


def provoke(command: str) -> tuple[int, str]:
    """Run ``tune COMMAND``: its exit code, and its complaint on stderr without what differs between machines."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(shlex.split(command))
    return code, _without_machine("\n".join(line for line in said.getvalue().splitlines() if line.startswith("tune:")))


def _without_machine(text: str) -> str:
    text = re.sub(r"this CPU has [^;]*", "this CPU has …", text)
    text = text.replace(str(Path.cwd()) + os.sep, "").replace(str(Path.cwd()), ".")
    text = re.sub(r"may run on \d+ CPUs: give 1 to \d+", "may run on 2 CPUs: give 1 to 2", text)
    return re.sub(r"there are \d+; ask", "there are 2; ask", text)


def page(place: Path) -> str:
    """The page, made in the empty folder ``place``."""
    lines = [HEAD]
    with inside(place):
        folder(place)
        for heading, commands in PROVOCATIONS.items():
            lines += [f"## {heading}", ""]
            for command in commands:
                code, said = provoke(command)
                lines += ["```console", f"$ tune {command}", said, f"[exit code {code}]", "```", ""]
    return "\n".join(lines).rstrip() + "\n"
