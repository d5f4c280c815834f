"""``python -m tests.zoo MODEL|FOLDER…``: imports ONNX files, each in a process of its own; ``--effort``
also tunes, verifies and compares it, ``--untuned`` builds it with first guesses and verifies it.

Outcomes are appended to a file of JSON lines, so that an interrupted run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from tests.zoo.trial import VERDICTS, Outcome
from tests.zoo.tuned import ENGINES, built, tuned

LIMIT_S = 600.0
"""Seconds after which a model counts as a hang. The importer's own limits are below it."""

COMMAND = "; to tune the rest"
"""Where the command begins that a refusal ends with."""

COLUMNS = (
    *("model", "nodes", "MB", "outcome", "import s", "peak MB", "run s", "ours ms"),
    *("over ONNX Runtime", "over OpenVINO", "CPUs apart"),
)

END = "<!-- zoo:end -->"
"""Ends what is made of a page; what stands behind it is kept."""

LARGE_MS = 0.2
"""Milliseconds of an inference from which models have a mean of their own: below it the call itself counts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, nargs="+", help="files, or folders of them")
    parser.add_argument("--results", type=Path, default=Path("build/zoo.jsonl"))
    parser.add_argument("--page", type=Path, help="write the table here; what stands behind its end mark is kept")
    parser.add_argument("--effort", help="tune with this effort; without it models are only imported")
    parser.add_argument("--untuned", action="store_true", help="build with first guesses and verify, nothing measured")
    parser.add_argument(
        "--rounds", type=int, default=0, help="compare with ONNX Runtime and OpenVINO in so many rounds"
    )
    parser.add_argument(
        "--keep", type=Path, help="tune on to the budget's end, compare that artifact too, and keep both runs here"
    )
    parser.add_argument("--limit-s", type=float, default=1e9, help="start no model after this many seconds")
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    lines = options.results.read_text().splitlines() if options.results.is_file() else []
    known = {data["name"]: Outcome(**data) for data in map(json.loads, lines)}
    began = time.monotonic()
    groups = (place.glob("*.onnx") if place.is_dir() else [place] for place in options.models)
    for path in sorted(chain.from_iterable(groups)):
        outcome = known.get(path.stem)
        done = outcome is not None and (outcome.tuned is not None or not options.untuned)
        if done or time.monotonic() - began > options.limit_s:
            continue
        outcome = outcome or tried(path)
        if options.effort and outcome.kind in ("whole", "fallback"):
            result = tuned(path, outcome.kind, outcome.inputs, options.effort, options.rounds, options.keep)
            outcome = replace(outcome, tuned=vars(result))
            print(
                f"{'right' if result.right else 'FAILED':8} {result.seconds:6.1f} s {result.message[:300]}", flush=True
            )
        if options.untuned and outcome.kind in ("whole", "fallback"):
            outcome = replace(outcome, tuned=vars(built(path, outcome.kind, outcome.inputs)))
            print(f"{'right' if outcome.tuned['right'] else 'FAILED':8} {outcome.tuned['message'][:300]}", flush=True)
        known[path.stem] = outcome
        with options.results.open("a") as stream:
            stream.write(json.dumps(vars(outcome)) + "\n")
        print(f"{outcome.kind:8} {outcome.seconds:6.1f} s {outcome.name} {outcome.message[:200]}", flush=True)
    print(dict(Counter(outcome.kind for outcome in known.values())))
    if options.page:
        kept = options.page.read_text().partition(END)[2] if options.page.is_file() else ""
        text = strangers_page(known) if options.untuned else page(known)
        options.page.write_text(text + END + (kept or "\n"))


def tried(path: Path) -> Outcome:
    """The outcome of one model."""
    command = [sys.executable, "-m", "tests.zoo.trial", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return Outcome(path.stem, "crash", f"no end within {LIMIT_S:.0f} s")
    if done.returncode:
        return Outcome(path.stem, "crash", " ".join(done.stderr.strip().splitlines()[-1:]))
    data = json.loads(done.stdout.splitlines()[-1])
    return Outcome(**{**data, "inputs": tuple(data["inputs"])})


def strangers_page(known: Mapping[str, Outcome]) -> str:
    """The page of ``make strangers``."""
    outcomes = sorted(known.values(), key=lambda outcome: outcome.name)
    counts = Counter(outcome.verdict for outcome in outcomes)
    whole = sum(outcome.kind == "whole" for outcome in outcomes)
    lines = [
        "# Models of other architectures",
        "",
        "These are fresh exports of architectures that neither the zoo nor the tests contain: models of timm, models",
        "of transformers with real widths and few layers, and small networks of other fields. Weights are random.",
        "Each is imported, built with first guesses as `--effort instant` builds it, and compared with ONNX Runtime",
        "on two random inputs. `make strangers` makes this page.",
        "",
        "| models | imported whole | right | right with `--fallback onnxruntime` | refused | wrong |",
        "|---|---|---|---|---|---|",
        f"| {len(outcomes)} | {whole} | {' | '.join(str(counts[verdict]) for verdict in VERDICTS)} |",
        "",
        "| model | nodes | MB | verdict | largest relative error |",
        "|---|---|---|---|---|",
    ]
    for stranger in outcomes:
        error = f"{stranger.tuned['error']:.1g}" if stranger.tuned and stranger.tuned["right"] else "–"
        verdict = stranger.verdict or "imported only"
        lines.append(f"| {stranger.name} | {stranger.nodes} | {stranger.megabytes} | {verdict} | {error} |")
    rest = [(outcome, (outcome.tuned or {}).get("message") or outcome.message) for outcome in outcomes]
    if any(message for _, message in rest):
        lines += ["", "## Not right or not whole, and why", ""]
        lines += [f"- **{one.name}**: {' '.join(m.split(COMMAND)[0].split())[:300]}" for one, m in rest if m]
    return "\n".join(lines) + "\n"


def page(known: Mapping[str, Outcome]) -> str:
    """The page of ``make zoo``."""
    outcomes = sorted(known.values(), key=lambda outcome: outcome.name)
    counts = Counter(outcome.kind for outcome in outcomes)
    results = [outcome.tuned for outcome in outcomes if outcome.tuned]
    efforts = ", ".join(sorted({f"`--effort {result['effort']}`" for result in results}))
    right, compared = sum(result["right"] for result in results), sum(bool(result["speed"]) for result in results)
    lines = [
        "# Models that people have",
        "",
        "These are fresh exports with random weights and trained models of public packages. The exports come from",
        "PyTorch's TorchScript exporter (`.ts`), its newer one (`.dyn`) and skl2onnx, some of them quantised or",
        "optimised by ONNX Runtime. Each model is imported, tuned and verified by `tune run` with an empty log. It",
        "then runs in turn with ONNX Runtime and OpenVINO, in fp32 or int8, on the same threads. `make zoo` makes this",
        "page.",
        "",
        "| models | imported whole | with `--fallback onnxruntime` | refused | crash or hang |",
        "|---|---|---|---|---|",
        f"| {len(outcomes)} | {counts['whole']} | {counts['fallback']} | {counts['refused']} | {counts['crash']} |",
        "",
        f"{right} of {len(results)} tuned models ({efforts}) match ONNX Runtime, and {compared} were compared. "
        + ahead(results),
        "",
        "- *Import s*: from the start of the process to the tasks or the refusal. *Run s*: the entire `tune run`.",
        "- *Peak MB*: the larger of the two processes that import.",
        "- *CPUs apart*: nanoseconds that a cache line took from one CPU to the other, before and after the comparison",
        "  ([why](measuring.md#what-disturbs-a-timing)).",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
    ]
    lines += [
        f"| {outcome.name} | {outcome.nodes} | {outcome.megabytes} | {outcome.kind} | {outcome.seconds} "
        f"| {outcome.peak_mb:.0f} | {' | '.join(_tuned_cells(outcome.tuned))} |"
        for outcome in outcomes
    ]
    failed = [outcome for outcome in outcomes if outcome.tuned and not outcome.tuned["right"]]
    if failed:
        lines += ["", "## Not right, and why", ""]
        lines += [
            f"- **{outcome.name}**: {' '.join(outcome.tuned['message'].split())[:300]}"
            for outcome in failed
            if outcome.tuned
        ]
    rest = [outcome for outcome in outcomes if outcome.message]
    if rest:
        lines += ["", "## Not whole, and why", ""]
        lines += [
            f"- **{outcome.name}**: {' '.join(outcome.message.split(COMMAND)[0].split())[:300]}" for outcome in rest
        ]
    return "\n".join(lines) + "\n"


def ahead(results: Iterable[Mapping[str, Any]]) -> str:
    """How many of what was tuned are as fast as the better of the other engines, and the geometric means over it."""
    least = [(min(result["speed"].values()), result["tuned_ms"]) for result in results if result["speed"]]
    if not least:
        return ""
    large = [speed for speed, ms in least if ms >= LARGE_MS]
    words = (
        f"{sum(speed >= 1 for speed, _ in least)} of {len(least)} are at least as fast as the better of both:"
        f" {statistics.geometric_mean(speed for speed, _ in least):.2f} times in the geometric mean"
    )
    if large:
        mean = statistics.geometric_mean(large)
        words += f", and {mean:.2f} times for the {len(large)} that take at least {LARGE_MS} ms"
    return words + "."


def _tuned_cells(result: Mapping[str, Any] | None) -> list[str]:
    if not result or not result["right"]:
        return ["–"] * 5
    speed = result["speed"] or {}
    over = [f"{speed[engine]:.2f}" if engine in speed else "–" for engine in ENGINES]
    apart = ", ".join(f"{ns:.0f}" for ns in result.get("apart_ns") or ())
    return [f"{result['seconds']:.0f}", f"{result['tuned_ms']:.3g}", *over, apart or "–"]


if __name__ == "__main__":
    main()
