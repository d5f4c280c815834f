"""``python -m research.c_library ARTIFACT… [--only STEP]``: what an artifact is as a C library.

    check     exported; its outputs against the recorded ones and ONNX Runtime's, in an empty environment; what it is
              linked with and how large it is
    memory    what opening takes and what memory it needs, in a first process and in a second one beside it
    time      its latency over the session's, in turn, on inputs of the same alignment
    valgrind  one run under valgrind: for artifacts of ``--target '{"isa": "avx2"}'``, since valgrind knows no AVX-512

What was done before is not done again; the table shows all that is there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.artifact.composite import read_composite
from autotune.artifact.directory import Artifact, read_artifact
from autotune.artifact.manifest import KERNELS, WEIGHTS, kind_of
from autotune.exchange.export_c import export_c, write_cases
from autotune.importer.load import load_model
from autotune.runtime.session import InferenceSession
from autotune.validation.bench import find_model
from autotune.validation.reference_runs import Reference
from autotune.validation.verify import random_inputs

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build/c_library"
PROBE = Path(__file__).with_name("probe.c.in")
STEPS = ("check", "memory", "time", "valgrind")

BARE = {"PATH": "/nonexistent"}
"""An environment without Python."""

LIBC = ("linux-vdso", "libc.so", "libm.so", "libpthread", "ld-linux", "libdl", "librt")

TOLERANCE = 3e-4
"""Of the largest number of an output: ONNX Runtime adds up in another order, and has no Winograd kernels of 4 × 4
outputs. With those in most of its convolutions, VGG-19 is off by 1.2e-4."""

CASES = 3
TIMED_S = 0.15
"""Seconds of one turn of either side."""

VALGRIND = (
    *("valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=all", "--fair-sched=yes"),
    "--vex-guest-max-insns=20",  # with its default it ran out of room for ShuffleNet's long unrolled kernels
)


def parts_of(artifact: Path) -> list[Artifact]:
    """The sets of shapes, as the library numbers them."""
    if kind_of(artifact) == KERNELS:
        return [read_artifact(artifact)]
    composite = read_composite(artifact)
    return [composite.open(part) for part in composite.parts]


def output_of(command: Sequence[str | Path], **options: Any) -> str:
    """What it prints.

    Raises:
        SystemExit: if it ends with an error.
    """
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def exported(artifact: Path, folder: Path, name: str) -> Path:
    """The library's folder, with a probe in it; made if it is not there."""
    out = folder / name
    if not out.is_dir():
        export_c(artifact, out, name)
    probe = out / "probe"
    if not probe.exists():
        source = probe.with_suffix(".c")
        source.write_text(PROBE.read_text().replace("@name@", name).replace("@NAME@", name.upper()))
        where = [f"-I{out / 'include'}", f"-L{out / 'lib'}", f"-l{name}", "-Wl,-rpath,$ORIGIN/lib"]
        output_of(["gcc", "-O2", "-std=gnu11", "-Wall", "-Werror", source, *where, "-o", probe])
    return out


def check(artifact: Path, out: Path, name: str) -> dict[str, Any]:
    """Outputs, size and needs of the library."""
    output_of([out / "selftest/selftest"], env=BARE)
    largest = 0.0
    cases: list[tuple[int, list[NDArray[Any]]]] = []
    session = InferenceSession(artifact)
    for number, part in enumerate(parts_of(artifact)):
        shapes = {spec.name: spec.shape for spec in part.inputs if spec.shape}
        reference = Reference(load_model(find_model(part), shapes))
        for seed in range(CASES):
            feed = random_inputs(part.inputs, seed)
            engine, theirs = reference.outputs(feed)
            assert engine.startswith("onnxruntime"), engine
            cases.append((number, [*feed.values(), *theirs]))
            for one, other in zip(session.run(None, feed), theirs, strict=True):
                largest = max(largest, float(np.abs(one - other).max() / np.abs(other).max()))
    write_cases(out / "selftest/reference.cases", iter(cases))
    output_of([out / "selftest/selftest", out / "selftest/reference.cases", str(TOLERANCE)], env=BARE)
    library = out / "lib" / f"lib{name}.so"
    needed = [line.split()[0] for line in output_of(["ldd", library]).splitlines()]
    strange = [dependency for dependency in needed if not Path(dependency).name.startswith(LIBC)]
    return {"error": largest, "library_kb": library.stat().st_size / 1e3, "other_libraries": strange}


@contextmanager
def probe(out: Path) -> Iterator[tuple[dict[str, float], Callable[[int], dict[str, float]]]]:
    """What the probe says at first, and what it says after so many runs."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([out / "probe"], stdin=pipe, stdout=pipe, text=True, env=BARE)
    assert process.stdin is not None
    assert process.stdout is not None
    lines, orders = process.stdout, process.stdin

    def ask(runs: int) -> dict[str, float]:
        orders.write(f"{runs}\n")
        orders.flush()
        return dict(json.loads(lines.readline()))

    try:
        yield json.loads(lines.readline()), ask
    finally:
        orders.close()
        process.wait(60)


def memory(artifact: Path, out: Path, opens: int = 15) -> dict[str, Any]:
    """Seconds of opening, and megabytes."""
    arena = sum(part.steps.arena_bytes for part in parts_of(artifact))
    weights = artifact / WEIGHTS
    opened = []
    for _ in range(opens):
        with probe(out) as (first, _ask):
            opened.append(first["open_ms"])
    with probe(out) as (first, ask):
        alone = ask(3)
        with probe(out) as (_, ask_second):
            second = ask_second(3)
    return {
        "open_ms": statistics.median(opened),
        "open_most_ms": max(opened),
        "weights_mb": (weights.stat().st_size if weights.is_file() else 0) / 1e6,
        "arena_mb": arena / 1e6,
        "peak_mb": alone["peak_kb"] * 1.024e-3,
        "process_mb": first["before_kb"] * 1.024e-3,
        "second_mb": second["private_kb"] * 1.024e-3,
    }


def timed(artifact: Path, out: Path, rounds: int) -> dict[str, Any]:
    """Library over session, in turn."""
    session = InferenceSession(artifact)
    part = parts_of(artifact)[0]
    feed = {spec.name: np.zeros(spec.shape, spec.dtype) for spec in part.inputs}

    def ours(runs: int) -> float:
        laps = []
        for _ in range(runs):
            began = time.perf_counter()
            session.run(None, feed)
            laps.append(time.perf_counter() - began)
        return 1e3 * statistics.median(laps)

    with probe(out) as (_, ask):
        ask(5)
        runs = max(3, int(1e3 * TIMED_S / ours(5)))
        pairs = []
        for number in range(rounds):
            sides = [lambda: ask(runs)["median_ms"], lambda: ours(runs)]
            first, second = (side() for side in (sides if number % 2 else sides[::-1]))
            pairs.append((first, second) if number % 2 else (second, first))
    ratios = [library / own for library, own in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"library_ms": statistics.median(pair[0] for pair in pairs), "ratio": middle, "quartiles": [low, high]}


def valgrind(out: Path) -> dict[str, Any]:
    """That a run is clean."""
    output_of([*VALGRIND, out / "probe"], input="1\n", env={**BARE, "PATH": os.environ["PATH"]})
    return {"clean": True}


def table(folder: Path) -> list[str]:
    """Lines of all that was done."""
    head = "| artifact | .so kB | off ONNX Runtime by | opens in ms | weights, arena MB | peak over both MB "
    lines = [head + "| second process MB | library / session | valgrind |", "|---|" + "---:|" * 8]
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text())
        first, room, pace = (data.get(step, {}) for step in ("check", "memory", "time"))
        cells = [""] * 8
        if first:
            cells[:2] = [f"{first['library_kb']:.0f}", f"{first['error']:.1e}"]
        if room:
            over = room["peak_mb"] - room["weights_mb"] - room["arena_mb"]
            sizes = f"{room['weights_mb']:.1f}, {room['arena_mb']:.1f}"
            cells[2:6] = [f"{room['open_ms']:.1f}", sizes, f"{over:.1f}", f"{room['second_mb']:.1f}"]
        if pace:
            low, high = pace["quartiles"]
            cells[6] = f"{pace['ratio']:.3f} ({low:.3f}–{high:.3f})"
        if "valgrind" in data:
            cells[7] = "clean"
        lines.append(f"| {path.stem} | {' | '.join(cells)} |")
    return lines


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m research.c_library", description=__doc__)
    parser.add_argument("artifacts", nargs="*", type=Path)
    parser.add_argument("--only", choices=STEPS, help="this step alone; all but valgrind unless given")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    for artifact in options.artifacts:
        name = artifact.name.removesuffix(".tuned").replace(".", "_").replace("-", "_")
        said = folder / f"{name}.json"
        data = json.loads(said.read_text()) if said.exists() else {}
        out = exported(artifact, folder, name)
        steps: dict[str, Callable[[], dict[str, Any]]] = {
            "check": lambda artifact=artifact, out=out, name=name: check(artifact, out, name),
            "memory": lambda artifact=artifact, out=out: memory(artifact, out),
            "time": lambda artifact=artifact, out=out: timed(artifact, out, options.rounds),
            "valgrind": lambda out=out: valgrind(out),
        }
        for step in [options.only] if options.only else STEPS[:-1]:
            if step not in data:
                data[step] = steps[step]()
                said.write_text(json.dumps(data, indent=1) + "\n")
    print("\n".join(table(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
