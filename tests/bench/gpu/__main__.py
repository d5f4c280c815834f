"""``python -m tests.bench.gpu [MODEL…]``: with a GPU, build, check and time everything; a short table last.

For every model: ``tune run --target cuda`` within the budget (it verifies the outputs against ONNX Runtime), then
the artifact against PyTorch (eager with cuDNN and cuBLAS, and torch.compile) and ONNX Runtime's CUDA provider, as far
as they are installed, in turn. Everything goes to OUT as JSON too; records come back with ``tune log import``.

Nothing here was ever run where it was written: there was no GPU. See docs/cuda.md.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.models.catalog import cached

MODELS = ("squeezenet", "resnet50", "vgg19", "encoder", "resnet50_b8", "encoder_b8")
ROUNDS = 30
SMOKE = "tiny_cnn"

Run = Callable[[], Any]


def tune(name: str, budget: str, out: Path) -> dict[str, Any]:
    """What ``tune run --json`` says, or why it failed."""
    command = [sys.executable, "-m", "autotune", "run", str(cached(name)), "--target", "cuda", "--budget", budget]
    command += ["--log", str(out / "tuning.db"), "--out", str(out / f"{name}.tuned"), "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"error": done.stderr.strip()[-300:] or f"exit code {done.returncode}"}
    return json.loads(done.stdout)


def ours(artifact: Path, feed: dict[str, np.ndarray]) -> Run:
    from autotune import InferenceSession

    session = InferenceSession(artifact)
    return lambda: session.run(None, feed)


def onnxruntime_cuda(name: str, feed: dict[str, np.ndarray]) -> Run | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return None
    session = onnxruntime.InferenceSession(str(cached(name)), providers=["CUDAExecutionProvider"])
    return lambda: session.run(None, feed)


def torch_engines(name: str, feed: dict[str, np.ndarray]) -> dict[str, Run]:
    """PyTorch on the same graph, through onnx2torch where that is installed."""
    try:
        import onnx
        import torch
        from onnx2torch import convert
    except ImportError:
        return {}
    torch.backends.cuda.matmul.allow_tf32 = False  # equal precision
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    module = convert(onnx.load(str(cached(name)))).cuda().eval()
    arrays = [torch.from_numpy(array) for array in feed.values()]

    def runner(call: Any) -> Run:
        def run() -> Any:
            with torch.inference_mode():
                result = call(*(array.cuda(non_blocking=True) for array in arrays))
                return result.cpu() if hasattr(result, "cpu") else [part.cpu() for part in result]

        return run

    return {"torch": runner(module), "torch.compile": runner(torch.compile(module, mode="max-autotune"))}


def race(engines: dict[str, Run]) -> dict[str, float]:
    """Median milliseconds of every engine, run in turn."""
    for run in engines.values():
        for _ in range(3):
            run()
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(ROUNDS):
        for name, run in engines.items():
            began = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(series) * 1e3 for name, series in times.items()}


def measure(name: str, budget: str, out: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name, "tuned": tune(name, budget, out)}
    if "error" in row["tuned"]:
        return row
    from autotune.artifact import read_artifact
    from autotune.verify import random_inputs

    artifact = out / f"{name}.tuned"
    feed = random_inputs(read_artifact(artifact).inputs, 0)
    engines: dict[str, Run] = {"ours": ours(artifact, feed), **torch_engines(name, feed)}
    if (peer := onnxruntime_cuda(name, feed)) is not None:
        engines["onnxruntime"] = peer
    row["ms"] = race(engines)
    return row


def table(rows: list[dict[str, Any]]) -> list[str]:
    names = sorted({name for row in rows for name in row.get("ms", {})}, key=lambda name: (name != "ours", name))
    lines = ["model".ljust(14) + "".join(name.rjust(16) for name in names) + "  outputs"]
    for row in rows:
        cells = "".join(f"{row['ms'][name]:13.3f} ms" if name in row.get("ms", {}) else " " * 16 for name in names)
        verdict = row["tuned"].get("error") or ("match" if row["tuned"]["verified"]["passed"] else "DIFFER")
        lines.append(row["model"].ljust(14) + cells + f"  {verdict}")
    for name in names[1:]:
        ratios = [row["ms"][name] / row["ms"]["ours"] for row in rows if name in row.get("ms", {})]
        lines.append(f"{name} / ours, geometric mean: {math.exp(statistics.fmean(map(math.log, ratios))):.3f}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--budget", default="5m", help="tuning time of each model")
    parser.add_argument("--out", type=Path, default=Path("build/gpu"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    smoke = tune(SMOKE, "20s", arguments.out)
    print("smoke test:", smoke.get("error") or smoke["verified"], flush=True)
    if "error" in smoke:
        return 1
    rows = []
    for name in arguments.models:
        rows.append(measure(name, arguments.budget, arguments.out))
        print(json.dumps(rows[-1]), flush=True)
        (arguments.out / "gpu.json").write_text(json.dumps(rows, indent=1))
    command = [sys.executable, "-m", "autotune", "log", "export", str(arguments.out / "records.jsonl")]
    subprocess.run([*command, "--log", str(arguments.out / "tuning.db")], check=False)
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
