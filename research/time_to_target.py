"""``python -m research.time_to_target FILE.events …``: when a run's kernels were ahead of ONNX Runtime."""

from __future__ import annotations

import json
import sys
from pathlib import Path

MODEL = 1.08
"""A whole model takes so much more than the sum of its kernels."""


def soon(path: Path, peer_ms: float | None = None) -> tuple[float | None, float | None]:
    """Seconds of tuning until every tunable task had a kernel, and until their sum was below the peer's latency.

    Args:
        peer_ms: to come below; None takes what the run found ONNX Runtime to take.
    """
    events = [json.loads(line) for line in path.read_text().splitlines()]
    served = {event["key"] for event in events if event["event"] == "slot_done"}
    if peer_ms is None:
        peer_ms = next((event["latency_ms"] for event in events if event["event"] == "reference_timed"), None)
    weights: dict[str, int] = {}
    best_ms: dict[str, float] = {}
    began, all_s = 0.0, None
    for event in events:
        if event["event"] == "tuning_began":
            began = event["t"]
            weights = {task["key"]: task["weight"] for task in event["tasks"] if task["key"] in served}
        if event["event"] == "slot_done" and event["best_us"]:
            best_ms[event["key"]] = 1e-3 * event["best_us"]
            if len(best_ms) < len(weights):
                continue
            all_s = all_s or event["t"] - began
            total_ms = sum(weight * best_ms[key] for key, weight in weights.items())
            if peer_ms is not None and MODEL * total_ms < peer_ms:
                return all_s, event["t"] - began
    return all_s, None


def main() -> int:
    for name in sys.argv[1:]:
        every, ahead = (f"{s:.1f} s" if s is not None else "never" for s in soon(Path(name)))
        print(f"{Path(name).stem:18} every task after {every}, ahead of ONNX Runtime after {ahead}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
