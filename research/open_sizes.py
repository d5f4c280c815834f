"""``python -m research.open_sizes MODEL.onnx``: requests of mixed batches and lengths, beside two other engines.

Two of the model's axes are open: batches are drawn from 1, 2, 4 … and lengths from a log-normal distribution. A first
half of the requests is given to ``tune run --sizes``, as a session would have recorded it. The second half runs in turn
on the artifact, on ONNX Runtime and on OpenVINO with dynamic shapes (in fp32), which compute every size exactly.
Printed are the requests that were refused or wrong, and of each engine the median ratio of the times for each group of
lengths and over all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

import autotune

MEDIAN, SPREAD = 40, 0.9
"""Median length in tokens, and standard deviation of the lengths' logarithms."""

PAUSE_S = 0.1
"""Pause before a timed call, in which threads of the engine before it stop looking for work. ONNX Runtime's still do so
after 20 ms, which halves what the other engine has of that core."""

GROUPS = (8, 16, 32, 64, 128, 256, 512)
"""Largest length of each printed group."""

Feed = Mapping[str, NDArray[Any]]
Run = Callable[[Feed], Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m research.open_sizes", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--longest", type=int, default=128)
    parser.add_argument("--largest-batch", type=int, default=8)
    parser.add_argument("--effort", default="instant")
    parser.add_argument("--artifact", type=Path, help="use this one, and tune nothing")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="absolute; 0.05 for models that quantise")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    sizes = [drawn(rng, options.longest, options.largest_batch) for _ in range(options.requests)]
    threads = onnxruntime.SessionOptions()
    threads.intra_op_num_threads = 2
    theirs = onnxruntime.InferenceSession(str(options.model), threads, providers=["CPUExecutionProvider"])
    inputs = [(value.name, value.type) for value in theirs.get_inputs()]
    artifact = options.artifact or tuned(options.model, sizes[: len(sizes) // 2], [*dict(inputs)], options.effort)
    ours = autotune.InferenceSession(artifact)
    failures: Counter[str] = Counter()
    engines: dict[str, Run] = {
        "ours": lambda feed: ours.run(None, dict(feed)),
        "ONNX Runtime": lambda feed: theirs.run(None, dict(feed)),
        "OpenVINO in fp32": openvino_run(options.model),
    }
    ratios, total_s = defaultdict(list), np.zeros(len(engines))
    for batch, length in sizes[len(sizes) // 2 :]:
        feed = {name: values(name, kind, (batch, length), rng) for name, kind in inputs}
        expected = theirs.run(None, dict(feed))
        try:
            got = ours.run(None, dict(feed))
        except autotune.AutotuneError as error:
            print(f"{batch} x {length}: {error}")
            failures["refused"] += 1
            continue
        same = all(np.allclose(one, other, 1e-2, options.tolerance) for one, other in zip(got, expected, strict=True))
        failures["right" if same else "wrong"] += 1
        spent_s = in_turn([*engines.values()], feed, rng)
        group = next(size for size in GROUPS if length <= size)
        ratios[group].append(spent_s[1:] / spent_s[0])
        total_s += spent_s
    print(dict(failures))
    for number, name in enumerate([*engines][1:]):
        print(f"times as fast as {name}:")
        for group, of_group in sorted(ratios.items()):
            low, middle, high = np.quantile(of_group, [0.25, 0.5, 0.75], axis=0)[:, number]
            print(f"up to {group:4}: {len(of_group):4} requests, {middle:.2f} ({low:.2f} to {high:.2f})")
        print(f"all, by total time: {total_s[1 + number] / total_s[0]:.2f}")
    print("seconds:", ", ".join(f"{name} {spent:.3f}" for name, spent in zip(engines, total_s, strict=True)))


def openvino_run(model: Path) -> Run:
    """OpenVINO on two threads, with the model's open sizes, in fp32."""
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 2, "PERFORMANCE_HINT": "LATENCY"}
    request = openvino.Core().compile_model(str(model), "CPU", settings).create_infer_request()
    return lambda feed: request.infer(dict(feed))


def drawn(rng: np.random.Generator, longest: int, largest_batch: int) -> tuple[int, int]:
    """A batch and a length."""
    batch = 1 << int(rng.integers(0, largest_batch.bit_length()))
    return batch, int(np.clip(rng.lognormal(np.log(MEDIAN), SPREAD), 3, longest))


def tuned(model: Path, sizes: list[tuple[int, int]], names: list[str], effort: str) -> Path:
    """The artifact of ``model`` for such traffic."""
    folder = Path(tempfile.mkdtemp(prefix="tune-open-"))
    calls = [{"shapes": {name: list(size) for name in names}, "count": n} for size, n in Counter(sizes).items()]
    (folder / "sizes.json").write_text(json.dumps(calls))
    command = [sys.executable, "-m", "autotune", "run", str(model), "--sizes", str(folder / "sizes.json")]
    began = time.monotonic()
    subprocess.run([*command, "--effort", effort, "--out", str(folder / "model.tuned"), "--no-peer"], check=True)
    print(f"tuned in {time.monotonic() - began:.0f} s: {folder / 'model.tuned'}")
    return folder / "model.tuned"


def values(name: str, kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    """Tokens, ones for a mask, or zeros for types of tokens."""
    if kind != "tensor(int64)":
        return rng.standard_normal(shape).astype(np.float32)
    low, high = (1, 2) if "mask" in name else (0, 1) if "type" in name else (1, 1000)
    return rng.integers(low, high, shape)


def in_turn(engines: Sequence[Run], feed: Feed, rng: np.random.Generator, rounds: int = 3) -> NDArray[np.float64]:
    """Median seconds of each engine on ``feed``. A first call, in which some prepare for a size, does not count."""
    spent_s: list[list[float]] = [[] for _ in engines]
    for engine in engines:
        engine(feed)
    for _ in range(rounds):
        for number in rng.permutation(len(engines)):
            time.sleep(PAUSE_S)
            began = time.perf_counter()
            engines[number](feed)
            spent_s[number].append(time.perf_counter() - began)
    return np.median(spent_s, axis=1)


if __name__ == "__main__":
    main()
