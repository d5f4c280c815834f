"""``python -m research.gpu.streamed MODEL``: a model of 1.2 times a memory limit, its weights streamed.

Prints milliseconds with all weights on the device, streamed, and as predicted, as one JSON line. The bar is an error of
10 %.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import tvm

from autotune.artifact.directory import Artifact, read_artifact
from autotune.backends.backend import Backend
from autotune.backends.cuda.cuda_backend import DEVICE, CudaBackend
from autotune.backends.device_interface import Room
from autotune.backends.device_memory import DeviceCapacity, Held, aligned
from autotune.builder.device_profiles import resident_run, weight_link
from autotune.graph.device_problem import spec_bytes
from autotune.graph.lanes import Lane
from autotune.runtime.model_timing import median_s
from research.gpu.__main__ import tune

SHARE = 1.2
"""Times that the model is as large as the memory that its weights get."""

BAR = 0.1
"""Share by which the prediction may be off."""


def compared(backend: Backend, lane: Lane, artifact: Artifact, share: float = SHARE) -> dict[str, float]:
    """Return what was measured and predicted of ``artifact`` where its weights are ``share`` times their memory."""
    between = sum(aligned(spec_bytes(spec)) for spec in (*artifact.inputs, *artifact.outputs))
    room = Room.of(between, 0, [artifact])
    limit = between + room.inner_bytes + int(room.weight_bytes / share)
    with resident_run(backend, lane, artifact) as run:
        resident_s = median_s(run)
    with resident_run(backend, replace(lane, limit_bytes=limit), artifact) as run:
        streamed_s = median_s(run)
    capacity = DeviceCapacity(lane.device, limit, weight_link(backend, lane))
    loaded = capacity.loaded({"model": Held(artifact, resident_s)}, between)
    predicted_s = loaded.seconds["model"]
    return {
        "resident ms": 1e3 * resident_s,
        "streamed ms": 1e3 * streamed_s,
        "predicted ms": 1e3 * predicted_s,
        "off": predicted_s / streamed_s - 1.0,
        "limit bytes": limit,
        "streamed bytes": loaded.memory.streamed_bytes,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--budget", default="10s")
    parser.add_argument("--out", type=Path, default=Path("build/gpu/streamed"))
    arguments = parser.parse_args()
    if not tvm.cuda(0).exist:
        print("no CUDA device can be used here; run this on a machine with a GPU")
        return 1
    arguments.out.mkdir(parents=True, exist_ok=True)
    tuned = tune(arguments.model, arguments.budget, arguments.out, "--target", "cuda")
    if "error" in tuned:
        print(json.dumps(tuned))
        return 1
    artifact = read_artifact(arguments.out / f"{arguments.model}.tuned")
    figures = compared(CudaBackend(), Lane(DEVICE, 0, artifact.target.threads, DEVICE), artifact)
    print(json.dumps({"model": arguments.model, **figures}))
    return int(abs(figures["off"]) > BAR)


if __name__ == "__main__":
    sys.exit(main())
