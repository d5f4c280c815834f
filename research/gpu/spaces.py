"""``python -m research.gpu.spaces NAME``: 150 random configs of one product on the device, for the replay data.

Failures are records too. ``build/gpu/spaces/NAME.jsonl`` has them all; they come back with ``tune log import``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import onnx

from tests.models.builder import Builder

CONFIGS = 150


def conv3x3() -> onnx.ModelProto:
    """A convolution late in ResNet-50."""
    b = Builder("conv3x3")
    x = b.input("x", (1, 256, 14, 14))
    return b.model(0, y=b.op("Conv", x, b.weight(256, 256, 3, 3), pads=[1, 1, 1, 1]))


def dense() -> onnx.ModelProto:
    """The second half of an encoder's feed-forward layer."""
    b = Builder("dense")
    return b.model(0, y=b.op("MatMul", b.input("x", (128, 3072)), b.weight(3072, 768)))


SPACES = {"conv3x3-fp16": (conv3x3, "fp16"), "dense-fp16": (dense, "fp16"), "dense-tf32": (dense, "tf32")}
"""Products on tensor cores: the order of their first guesses was never fitted to measurements."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=SPACES)
    parser.add_argument("--out", type=Path, default=Path("build/gpu/spaces"))
    parser.add_argument("--target", default="cuda")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    make, precision = SPACES[arguments.name]
    model, log = arguments.out / f"{arguments.name}.onnx", str(arguments.out / f"{arguments.name}.db")
    onnx.save(make(), model)
    tune = [sys.executable, "-m", "autotune"]
    run = [*tune, "run", str(model), "--target", arguments.target, "--precision", precision, "--budget", "10m"]
    run += ["--trials", str(CONFIGS), "--searcher", "random", "--log", log, "--quiet"]
    done = subprocess.run([*run, "--out", str(arguments.out / f"{arguments.name}.tuned")], check=False)
    export = [*tune, "log", "export", str(arguments.out / f"{arguments.name}.jsonl"), "--log", log]
    return subprocess.run(export, check=False).returncode or done.returncode


if __name__ == "__main__":
    sys.exit(main())
