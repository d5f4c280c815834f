"""What ``tune run`` makes of a model, and how fast that is beside ONNX Runtime and OpenVINO: both as commands."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.options import INSTANT
from research.core_speed import CoreSpeed
from research.kept_runs import collected, write_run

ROOT = Path(__file__).resolve().parents[2]

RUN_LIMIT_S = 900.0
"""Seconds after which a run or a bench counts as a hang; a run of ``--effort standard`` may take 120 s of tuning."""

ENGINES = "onnxruntime", "openvino"

WRONG = 4
"""Exit code of ``tune run`` for outputs that differ."""


@dataclass(frozen=True)
class Tuned:
    """What became of a model.

    Attributes:
        effort: of ``tune run``.
        right: whether an artifact was built and verified.
        message: why not.
        seconds: of the whole command.
        error: largest relative error of an output.
        bound: what decided that it is right.
        tuned_ms: of the model, as the run measured it.
        speed: engine → its median latency over ours; empty where it was not compared.
        apart_ns: nanoseconds that a cache line took from one CPU to the other before the comparison and after it.
        tuning_s: seconds of searching, compiling and measuring.
        remaining: the remaining gain that the run stated at its end, as in ``tune run --json``.
        further: if tuning went on to the end of the budget: ``tuning_s`` until there, ``reason`` and ``speed``, the
            first artifact's median latency over that of the second.
    """

    effort: str
    right: bool
    message: str = ""
    seconds: float = 0.0
    error: float = 0.0
    bound: str = ""
    tuned_ms: float | None = None
    speed: Mapping[str, float] | None = None
    apart_ns: Sequence[float] = ()
    tuning_s: float = 0.0
    remaining: Mapping[str, float] | None = None
    further: Mapping[str, Any] | None = None


def tuned(path: Path, kind: str, flags: Sequence[str], effort: str, rounds: int, keep: Path | None = None) -> Tuned:
    """Tune the model at ``path``, and compare it with the other engines in ``rounds`` rounds (0: not at all).

    Args:
        kind: of its ``Outcome``; what was imported by parts is given to ONNX Runtime there.
        flags: shapes that have to be given.
        keep: tune on to the end of the budget, compare that artifact too, and keep both runs here (``kept_runs``).
    """
    with tempfile.TemporaryDirectory(prefix="tune-zoo-") as folder:
        out, full = Path(folder) / "model.tuned", Path(folder) / "full.tuned"
        shapes = [word for flag in flags for word in ("--input", flag)]
        words = ["run", str(path), "--effort", effort, "--log", f"{folder}/t.db", *shapes, "--no-peer", "--quiet"]
        words += ["--fallback", "onnxruntime"] if kind == "fallback" else []
        began = time.monotonic()
        first, message = _command([*words, "--out", str(out), "--events", f"{folder}/first.events"])
        seconds = round(time.monotonic() - began, 1)
        if first is None or not first["verified"] or not first["verified"]["passed"]:
            return Tuned(effort, False, message or "not verified", seconds)
        others, more = [*ENGINES], None
        if keep is not None:
            more, message = _command(
                [*words, "--out", str(full), "--events", f"{folder}/further.events", "--until", "never"]
            )
            if more is None:
                return Tuned(effort, False, message, seconds)
            others = [str(full), *ENGINES]
            keep.mkdir(parents=True, exist_ok=True)
            events = [Path(folder) / f"{run}.events" for run in ("first", "further")]
            run = collected(path.stem, _made_where(first["target"]), Path(folder) / "t.db", events)
            write_run(run, keep / f"{path.stem}.{time.strftime('%Y%m%d-%H%M%S')}.json.gz")
        speed, apart_ns = compared(out, path, others, rounds) if rounds else ({}, [])
        further = None
        if more is not None:
            further = {"tuning_s": tuning_s(first) + tuning_s(more), "reason": more["reason"]}
            further["speed"] = 1.0 / speed.pop(str(full), math.nan)
        return Tuned(
            effort,
            True,
            "",
            seconds,
            first["verified"]["max_rel_err"],
            first["verified"]["bound"],
            first["latency_ms"]["tuned"],
            speed,
            apart_ns,
            tuning_s(first),
            first["remaining_gain"],
            further,
        )


def built(path: Path, kind: str, flags: Sequence[str]) -> Tuned:
    """Build the model at ``path`` with first guesses and verify it, in a process of its own; arguments as ``tuned``."""
    if kind == "fallback":
        return tuned(path, kind, flags, INSTANT, 0)
    command = [sys.executable, "-m", "tests.zoo.untuned", str(path), *flags]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return Tuned(INSTANT, False, f"hang: no end within {RUN_LIMIT_S:.0f} s")
    if done.returncode:
        return Tuned(INSTANT, False, f"exit {done.returncode}: " + " ".join(done.stderr.strip().splitlines()[-1:]))
    return Tuned(**json.loads(done.stdout.splitlines()[-1]))


def _made_where(target: str) -> str:
    """Date, target and commit: what tells runs of one model apart."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return f"{time.strftime('%Y-%m-%d')}, {target}, code {commit.stdout.strip()}"


def tuning_s(data: Mapping[str, Any]) -> float:
    """Seconds of searching, compiling and measuring of a run."""
    return round(sum(data["phase_s"].get(phase, 0.0) for phase in ("search", "compile", "measure")), 1)


def compared(artifact: Path, model: Path, others: Sequence[str], rounds: int) -> tuple[dict[str, float], list[float]]:
    """Engine → its median latency over ours, and how far apart the CPUs were before and after, in nanoseconds.

    All run in turn. If an engine refuses the model, each is compared alone, so that it does not stop the others.
    """
    speed: dict[str, float] = {}
    with CoreSpeed() as cores:
        cores.look()
        for against in (",".join(others), *others):
            words = ["bench", str(artifact), "--model", str(model), "--against", against, "--rounds", str(rounds)]
            timed, _ = _command(words)
            speed |= timed["speedup"] if timed else {}
            if {*others} <= {*speed}:
                break
        cores.look()
    return speed, cores.apart_ns


def _command(words: Sequence[str]) -> tuple[dict[str, Any] | None, str]:
    """The object that ``tune`` prints, or None and why there is none."""
    command = [sys.executable, "-m", "autotune", *words, "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return None, f"hang: no end within {RUN_LIMIT_S:.0f} s"
    if done.returncode:
        last = " ".join(done.stderr.strip().splitlines()[-1:])
        kind = "wrong" if done.returncode == WRONG else f"exit {done.returncode}"
        return None, f"{kind}: {last}"
    return json.loads(done.stdout), ""
