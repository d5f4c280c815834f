"""All that only a device can show, as steps with a command each: ``python -m research.gpu --minutes 15``.

Every step is a process of its own with a time limit. What it printed is kept in ``FOLDER/NAME.json`` when it ends.
A step that succeeded is not repeated: a run that was stopped goes on with the next one. Without a device,
``python -m research.gpu.steps`` prints the list.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEPT_CHARACTERS = 20_000
"""Characters that are kept of a step's output, from its end."""

LEAST_S = 10.0
"""A step that has less time left is not begun."""


@dataclass(frozen=True)
class Step:
    """A process.

    Attributes:
        seconds: after which it is stopped.
        arguments: of Python.
        bar: what it has to show.
    """

    name: str
    seconds: float
    arguments: tuple[str, ...]
    bar: str

    @property
    def command(self) -> str:
        """Return the command as a person types it."""
        return "python " + " ".join(self.arguments)


def _bench(model: str, precision: str) -> Step:
    arguments = ("-m", "research.gpu", model, "--budget", "12s", "--precision", precision, "--out", "build/gpu/peers")
    peers = ("--peers", "torch.max-autotune", "onnxruntime")
    return Step(f"{model}-{precision}", 41, (*arguments, *peers), "at least 1.0 times as fast as PyTorch")


ON_A_DEVICE = "tests/schedules_tests/templates_tests/cuda_tests/test_on_a_device.py"

STEPS = (
    Step("smoke", 40, ("-m", "pytest", "-q", "-x", ON_A_DEVICE), "every template is right"),
    Step("links", 20, ("-m", "research.gpu.links"), "figures for the guesses of lane_costs.py"),
    *(
        Step(f"placed-{model}", 100, ("-m", "research.gpu.placed", model), "placed 1.2 times as fast as either alone")
        for model in ("wide_deep", "siamese_lstm")
    ),
    *(
        _bench(model, precision)
        for precision in ("fp16", "tf32")
        for model in ("resnet50", "encoder", "resnet50_b8", "encoder_b8")
    ),
    Step(
        "encoder-bf16-model",
        41,
        ("-m", "research.gpu", "encoder_bf16", "--budget", "12s", "--out", "build/gpu/models", "--peers"),
        "the outputs of a model of bfloat16 match; its time next to that of encoder-fp16",
    ),
    Step("streamed", 60, ("-m", "research.gpu.streamed", "vgg19"), "slow-down of streaming predicted within 10 %"),
    *(
        Step(f"space-{name}", 66, ("-m", "research.gpu.spaces", name), "150 configs recorded, failures included")
        for name in ("conv3x3-fp16", "dense-fp16", "dense-tf32")
    ),
)
"""The steps, the most valuable first."""


def run_steps(folder: Path, seconds: float, steps: tuple[Step, ...] = STEPS) -> int:
    """Run what has not succeeded yet, within ``seconds``; 0 if every step has succeeded now."""
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    for step in steps:
        left = end - time.monotonic()
        if result(folder, step).get("code") != 0 and left >= min(LEAST_S, step.seconds):
            print(f"{step.name}: {step.command}", flush=True)
            (folder / f"{step.name}.json").write_text(json.dumps(_run(step, min(left, step.seconds)), indent=1))
    print("\n".join(report(folder, steps)))
    return int(any(result(folder, step).get("code") != 0 for step in steps))


def result(folder: Path, step: Step) -> dict[str, Any]:
    """Return what a step left: ``code``, ``seconds`` and ``output``; empty if it was not run."""
    file = folder / f"{step.name}.json"
    return json.loads(file.read_text()) if file.exists() else {}


def _run(step: Step, seconds: float) -> dict[str, Any]:
    began = time.monotonic()
    command = [sys.executable, *step.arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with the workers that it started, which hold the device
        output, _ = process.communicate()
        output += f"\nstopped after {seconds:.0f} s"
    return {
        "command": step.command,
        "code": process.returncode,
        "seconds": time.monotonic() - began,
        "output": output[-KEPT_CHARACTERS:],
    }


def report(folder: Path, steps: tuple[Step, ...] = STEPS) -> list[str]:
    """A line for every step: what became of it, and the last line that it printed."""
    lines = []
    for step in steps:
        outcome = result(folder, step)
        said = (outcome.get("output", "").strip().splitlines() or [""])[-1]
        state = "not run" if not outcome else "done" if outcome["code"] == 0 else "FAILED"
        lines.append(f"{step.name:20} {state:8} {outcome.get('seconds', 0.0):6.1f} s  {said}")
    return lines


if __name__ == "__main__":
    print("\n".join(f"{step.name:20} {step.seconds:4.0f} s  {step.bar}: {step.command}" for step in STEPS))
