"""``python -m research.gpu [MODEL…]``: with a GPU, build, check and time everything; a short table last.

``--minutes 15`` runs everything that only a device can show instead, step by step (``research/gpu/steps.py``).

For every model: ``tune run --target cuda`` within the budget (it verifies the outputs against ONNX Runtime), then
MetaSchedule for the same wall time, then the artifact against both, PyTorch (eager with cuDNN and cuBLAS, and
torch.compile) and ONNX Runtime's CUDA provider, as far as they are installed, in turn. Every engine's outputs are
compared with ours. Everything goes to OUT as JSON too; records come back with ``tune log import``.
See docs/cuda.md.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from autotune.cli.parsing import parse_seconds
from autotune.importer.load import load_model
from autotune.importer.program import simplify
from research.gpu import metaschedule
from research.gpu.steps import run_steps
from tests.models.catalog import cached

MODELS = ("squeezenet", "resnet50", "vgg19", "encoder", "resnet50_b8", "encoder_b8")
TOLERANCE = 2e-3
"""Largest error of an engine's outputs, as a share of the outputs' own size."""
PRECISIONS = {"fp32": TOLERANCE, "tf32": 2e-2, "fp16": 2e-2, "bf16": 1e-1}
"""Precision of the peers → such an error."""
ROUNDS = 30
SMOKE = "tiny_cnn"
SMOKE_BUDGET = "10s"
PEERS = ("torch", "torch.compile", "torch.max-autotune", "onnxruntime", "metaschedule")

Run = Callable[[], Any]


def tune(name: str, budget: str, out: Path, *more: str) -> dict[str, Any]:
    """What ``tune run --json`` says, or why it failed."""
    command = [sys.executable, "-m", "autotune", "run", str(cached(name)), "--budget", budget]
    command += [*(more or ("--target", "cuda")), "--log", str(out / "tuning.db"), "--out", str(out / f"{name}.tuned")]
    command += ["--json", "--quiet"]
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


def torch_engine(name: str, feed: dict[str, np.ndarray], mode: str, precision: str = "fp32") -> Run | None:
    """PyTorch on the same graph: eager, or compiled in a mode of ``torch.compile``; of ``PRECISIONS``."""
    try:
        import torch

        from research.gpu.torch_model import OnnxModule
    except ImportError:
        return None
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"  # equal precision
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    short = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    torch.backends.cudnn.benchmark = True
    module = OnnxModule(simplify(load_model(cached(name), {}))).cuda().eval()
    arrays = [torch.from_numpy(array) for array in feed.values()]

    call: Any = torch.compile(module, mode=mode) if mode else module

    def run() -> Any:
        with torch.inference_mode(), torch.autocast("cuda", dtype=short, enabled=short is not None):
            result = call(*(array.cuda(non_blocking=True) for array in arrays))
            parts = [result] if hasattr(result, "cpu") else result
            return [part.float().cpu() for part in parts]

    return run


def engines_of(
    name: str, out: Path, budget_s: float, feed: dict[str, np.ndarray], peers: Sequence[str], precision: str = "fp32"
) -> tuple[dict[str, Run], list[str]]:
    """Every engine that can be made, and why others cannot."""
    engines: dict[str, Run] = {"ours": ours(out / f"{name}.tuned", feed)}
    missing: list[str] = []
    makers: dict[str, Callable[[], Run | None]] = {
        "torch": lambda: torch_engine(name, feed, "", precision),
        "torch.compile": lambda: torch_engine(name, feed, "reduce-overhead", precision),
        "torch.max-autotune": lambda: torch_engine(name, feed, "max-autotune", precision),
        "onnxruntime": lambda: onnxruntime_cuda(name, feed),
        "metaschedule": lambda: metaschedule_engine(name, out, budget_s, feed),
    }
    for engine in peers:
        try:
            run = makers[engine]()
            if run is None:
                missing.append(f"{engine}: not installed")
                continue
            run()
            engines[engine] = run
        except Exception as error:  # a peer that fails is told, and the others are still timed
            missing.append(f"{engine}: {type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}")
    return engines, missing


def metaschedule_engine(name: str, out: Path, budget_s: float, feed: dict[str, np.ndarray]) -> Run:
    """MetaSchedule after ``budget_s`` seconds."""
    folder = out / f"{name}.metaschedule"
    metaschedule.tune(cached(name), folder, "cuda", budget_s)
    if not metaschedule.records(folder):
        raise RuntimeError(f"measured nothing in {budget_s:.0f} s; see {folder / 'log.txt'}")
    return metaschedule.engine(cached(name), folder, "cuda", feed)


def different(engines: dict[str, Run], tolerance: float = TOLERANCE) -> dict[str, float]:
    """Engine → largest error against ours, of those beyond ``tolerance``."""
    mine = [np.asarray(array, np.float64) for array in engines["ours"]()]
    beyond = {}
    for name, run in engines.items():
        theirs = run()
        theirs = theirs if isinstance(theirs, list | tuple) else [theirs]
        errors = [
            float(np.abs(np.asarray(b, np.float64) - a).max() / max(np.abs(a).max(), 1e-30))
            for a, b in zip(mine, theirs, strict=True)
        ]
        if max(errors) > tolerance:
            beyond[name] = max(errors)
    return beyond


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


def measure(name: str, budget: str, out: Path, peers: Sequence[str], precision: str = "fp32") -> dict[str, Any]:
    """A row of the table, all engines in one precision."""
    tuned = tune(name, budget, out, "--target", "cuda", "--precision", precision)
    row: dict[str, Any] = {"model": name, "precision": precision, "tuned": tuned}
    if "error" in row["tuned"]:
        return row
    from autotune.artifact.directory import read_artifact
    from autotune.validation.verify import random_inputs

    feed = random_inputs(read_artifact(out / f"{name}.tuned").inputs, 0)
    engines, row["missing"] = engines_of(name, out, parse_seconds(budget), feed, peers, precision)
    row["different"] = different(engines, PRECISIONS[precision])
    row["ms"] = race(engines)
    return row


def table(rows: list[dict[str, Any]]) -> list[str]:
    names = sorted({name for row in rows for name in row.get("ms", {})}, key=lambda name: (name != "ours", name))
    lines = ["model".ljust(14) + "".join(name.rjust(20) for name in names) + "  outputs"]
    for row in rows:
        cells = "".join(f"{row['ms'][name]:17.3f} ms" if name in row.get("ms", {}) else " " * 20 for name in names)
        verdict = row["tuned"].get("error") or ("match" if row["tuned"]["verified"]["passed"] else "DIFFER")
        wrong = "".join(f", {name} differs by {error:.1e}" for name, error in row.get("different", {}).items())
        lines.append(row["model"].ljust(14) + cells + f"  {verdict}{wrong}")
        lines += [f"  without {why}" for why in row.get("missing", ())]
    for name in names[1:]:
        ratios = [row["ms"][name] / row["ms"]["ours"] for row in rows if name in row.get("ms", {})]
        lines.append(f"{name} / ours, geometric mean: {math.exp(statistics.fmean(map(math.log, ratios))):.3f}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m research.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--budget", default="5m", help="tuning time of each model")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS, help="whom to time beside; default all")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="of all engines")
    parser.add_argument(
        "--minutes", type=float, help="run the steps that only a device can show, for at most that long"
    )
    parser.add_argument("--out", type=Path, default=Path("build/gpu"))
    arguments = parser.parse_args()
    if not tvm.cuda(0).exist:
        print("no CUDA device can be used here, so there is nothing to measure; run this on a machine with a GPU")
        return 1
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.minutes:
        return run_steps(arguments.out / "steps", 60 * arguments.minutes)
    if not (arguments.out / f"{SMOKE}.tuned").exists():
        smoke = tune(SMOKE, SMOKE_BUDGET, arguments.out)
        print("smoke test:", smoke.get("error") or smoke["verified"], flush=True)
        if "error" in smoke:
            return 1
    rows = []
    for name in arguments.models:
        rows.append(measure(name, arguments.budget, arguments.out, arguments.peers, arguments.precision))
        print(json.dumps(rows[-1]), flush=True)
        (arguments.out / "gpu.json").write_text(json.dumps(rows, indent=1))
    command = [sys.executable, "-m", "autotune", "log", "export", str(arguments.out / "records.jsonl")]
    subprocess.run([*command, "--log", str(arguments.out / "tuning.db")], check=False)
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
