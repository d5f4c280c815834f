"""An artifact with a made-up history: a report of it has everything that a report can have."""

from __future__ import annotations

import json
from pathlib import Path

from autotune.artifact.directory import read_artifact, read_tasks
from autotune.artifact.manifest import BENCH, annotate, attach
from autotune.events import ReferenceTimed
from autotune.host.roofline import Roofline
from autotune.measure.measurer import symbol_of
from autotune.tuning.run_history import Run, Slot, TaskHistory, write_history

BENCHED = {
    "threads": 1,
    "rounds": 3,
    "engines": [
        {"name": name, "version": "1.0", "precision": "fp32", "min_ms": p50 - 0.1, "p50_ms": p50, "mean_ms": p50}
        | {"p90_ms": p50 + 0.1, "p99_ms": p50 + 0.2}
        for name, p50 in (("tune", 1.0), ("onnxruntime", 1.5), ("openvino", 0.9))
    ],
    "speedup": {"onnxruntime": 1.5, "openvino": 0.9},
    "speedup_quartiles": {"onnxruntime": [1.4, 1.6], "openvino": [0.85, 0.95]},
    "others_cpu": 0.01,
}


def made_up_run(artifact: Path, tunable: int = 2) -> Run:
    """A run of six slots on the artifact's first tasks, one trial failed, one slot without a valid trial."""
    tasks, _ = read_tasks(artifact)
    histories, slots = [], []
    for index, task in enumerate(tasks[:tunable]):
        best = 1e-5 * (index + 1)
        algorithms = {"direct": 2 * best, "Winograd F(4, 3)": best} if index == 0 else {}
        histories.append(TaskHistory(task.key, task.weight, best / 2, 0, None, 20 * best, 3 * best, best, algorithms))
    for number, factor in enumerate((3.0, 2.0, 1.0)):
        for index, history in enumerate(histories):
            began = float(2 * number + index)
            latencies = (factor * (history.best_s or 0.0), None if number == 1 else 4e-5)
            failures = ("timeout",) if number == 1 else ()
            slots.append(Slot(history.task, began, began + 0.9, latencies, failures, "it is <expected> to cut most"))
    slots.append(Slot(histories[0].task, 6.0, 6.5, (None, None), ("wrong_result", "timeout"), "nothing else is left"))
    return Run(
        began=1.7e9,
        host="machine",
        cpu="A CPU",
        options={"budget_s": 60.0, "effort": "standard", "seed": 0, "searcher": "adaptive", "trials": None},
        versions={"tune-compiler": "0.1.0"},
        roofline=Roofline(100.0, 20.0, 80.0, 1 << 20),
        budget_s=60.0,
        reference=ReferenceTimed("onnxruntime", "1.0", 2e-5),
        tasks=tuple(histories),
        slots=tuple(slots),
        reason="the 57 s for trials are spent",
        elapsed_s=70.0,
        phase_s={"import": 1.0, "measure": 60.0},
        latency_ms={"untuned": 5.0, "tuned": 1.0},
        verified={
            "reference": "onnxruntime 1.0",
            "max_abs_err": 1e-6,
            "max_rel_err": 1e-5,
            "passed": True,
            "bound": "fp64",
            "allowed": "1e-05 + 0.001·|x|, or 3 times the distance",
        },
        profile=tuple((symbol_of(task.key), 2e-5) for task in tasks),
        lanes=(("cpu:0", "0.trunk", 0.0, 4e-5), ("cpu:0", "1.left", 4e-5, 9e-5), ("cpu:1", "1.right", 4e-5, 8e-5)),
        one_lane_s=1.2e-4,
    )


def make_history(artifact: Path, bench: bool = True) -> Path:
    """Give the artifact the made-up history, plausible latencies and, if asked, a bench."""
    run = made_up_run(artifact)
    seconds = {history.task: history.best_s for history in run.tasks}
    plan = json.loads((artifact / "plan.json").read_text())
    for choice in plan["choices"]:
        choice["latency_s"] = seconds.get(choice["task"], 3e-6)
    attach(artifact, "plan.json", json.dumps(plan).encode())
    write_history(artifact, (run,))
    annotate(artifact, {"latency_ms": run.latency_ms})
    if bench:
        attach(artifact, BENCH, json.dumps(BENCHED).encode())
    assert read_artifact(artifact)
    return artifact
