"""``python -m tests.emulation.models [NAME…]``: whole models for another processor, emulated, against ONNX Runtime.

Each model is built from first guesses (nothing is measured), exported as a C library and run once by QEMU with two
threads; its outputs are compared with those that ONNX Runtime computed here. Results are kept in FILE, a line each, and
models that are there are not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

import autotune
from autotune.exchange.export_c import export_c
from autotune.host.compilers import compile_with
from schedules.target import Target
from tests.emulation.kernels import emulated_command
from tests.models.catalog import cached

LIGHT = (
    *("squeezenet", "shufflenet", "alexnet", "inception_v2", "inception_v1"),
    *("densenet121", "resnet50", "zfnet512", "vgg19"),
)
MODELS = (*LIGHT, "lstm", "encoder", "qdq_cnn", "mobilenet_v2")
ONCE = Path(__file__).with_name("once.c")
FILE = Path("build/emulation.jsonl")
LONGEST_S = 500


def built(name: str, target: Target, folder: Path) -> Path:
    """The exported library of a model, from first guesses."""
    options = autotune.Options(target=target, device=False, out=folder / "made.tuned", log=folder / "log.db")
    artifact = autotune.tune(cached(name), options).artifact
    return export_c(artifact, folder / "exported", "model")


def errors(name: str, exported: Path, target: Target) -> list[float]:
    """Of each output, float32, the largest difference from the recorded one, as a share of its largest number.

    Raises:
        ValueError: if the emulated program fails.
    """
    program, cases, written = exported / "once", exported / "selftest/model.cases", exported / "outputs"
    paths = [f"-I{exported / 'include'}", f"-L{exported / 'lib'}", "-Wl,-rpath,$ORIGIN/lib", "-o", str(program)]
    compile_with(["-O1", "-x", "c", str(ONCE), "-x", "none", *paths, "-lmodel", "-lm"], target.architecture)
    command = emulated_command(target, str(program), str(cases), str(written))
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    if done.returncode:
        raise ValueError(f"the emulated model ended with {done.returncode}: {done.stderr[-300:]}")
    graph = onnx.load(cached(name), load_external_data=False).graph
    inputs = len({value.name for value in graph.input} - {value.name for value in graph.initializer})
    recorded, got = tensors(cases.read_bytes(), inputs + len(graph.output)), written.read_bytes()
    shares, at = [], 0
    for expected in recorded[inputs:]:
        ours = np.frombuffer(got, np.float32, len(expected), at)
        shares.append(float(np.abs(ours - expected).max() / max(np.abs(expected).max(), 1e-30)))
        at += ours.nbytes
    return shares


def tensors(data: bytes, count: int) -> list[NDArray[np.float32]]:
    """The first case's tensors, as ``export_c.write_cases`` writes them."""
    arrays, at = [], 8
    for _ in range(count):
        size = int(np.frombuffer(data, np.int64, 1, at)[0])
        arrays.append(np.frombuffer(data, np.float32, size // 4, at + 8))
        at += 8 + size
    return arrays


def row(name: str, processor: str) -> dict[str, object]:
    """Build, run and compare one model."""
    target = Target.cpu(processor, 2)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        exported = built(name, target, Path(folder))
        built_at = time.monotonic()
        shares = errors(name, exported, target)
        ended = time.monotonic()
    seconds = {"build_s": round(built_at - began), "emulate_s": round(ended - built_at)}
    return {"model": name, "processor": processor, "largest_error": max(shares), **seconds}


def main() -> None:
    """Run what is not in the file yet."""
    parser = argparse.ArgumentParser(prog="python -m tests.emulation.models", description="Emulated models")
    parser.add_argument("names", nargs="*", default=MODELS)
    parser.add_argument("--processor", default="neoverse-n2")
    parser.add_argument("--file", type=Path, default=FILE)
    arguments = parser.parse_args()
    lines = arguments.file.read_text().splitlines() if arguments.file.exists() else []
    known = {(one["model"], one["processor"]): one for one in map(json.loads, lines)}
    for name in arguments.names:
        result = known.get((name, arguments.processor))
        if result is None:
            result = row(name, arguments.processor)
            arguments.file.parent.mkdir(parents=True, exist_ok=True)
            with arguments.file.open("a") as stream:
                stream.write(json.dumps(result) + "\n")
        print(f"| {name} | {result['processor']} | {result['largest_error']:.1e} |", flush=True)


if __name__ == "__main__":
    main()
