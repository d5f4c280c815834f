"""TVM's own tuner as a peer: MetaSchedule on the same model, for the same wall time.

``python -m research.gpu.metaschedule MODEL.onnx FOLDER TARGET [TRIALS [EACH]]`` tunes until it is killed or has made
so many trials; what its database has by then counts. ``engine`` compiles from it; what has no record gets one of TVM's
default schedules.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.s_tir import dlight, meta_schedule

MOST_TRIALS = 1_000_000
PER_TASK = 2000
PER_ROUND = 64
"""Trials of a task's round: TVM's default."""


def tune(
    model: Path,
    folder: Path,
    target: str,
    budget_s: float | None,
    trials: int = MOST_TRIALS,
    per_round: int = PER_ROUND,
) -> None:
    """Tune in a child process for ``budget_s`` seconds of wall time, or until ``trials`` were made."""
    command = [sys.executable, "-m", "research.gpu.metaschedule"]
    command += [str(model), str(folder), target, str(trials), str(per_round)]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("w") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            child.wait(budget_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def engine(model: Path, folder: Path, target: str, feed: dict[str, np.ndarray]) -> Callable[[], Any]:
    """The model as MetaSchedule's database has it, from arrays to arrays."""
    native = _target(target)
    device = tvm.cuda(0) if native.kind.name == "cuda" else tvm.cpu(0)
    module = _module(model, native)
    with native:
        steps = [relax.transform.MetaScheduleApplyDatabase(str(folder))] if records(folder) else []
    if native.kind.name == "cuda":
        rules = (dlight.gpu.Matmul(), dlight.gpu.Reduction(), dlight.gpu.GeneralReduction(), dlight.gpu.Fallback())
        steps.append(dlight.ApplyDefaultSchedule(*rules))
    with native, tvm.transform.PassContext(opt_level=3):
        for step in steps:
            module = step(module)
        machine = relax.VirtualMachine(tvm.compile(module, native), device)

    def run() -> Any:
        arrays = [tvm.runtime.tensor(array, device) for array in feed.values()]
        result = machine["main"](*arrays)
        return result.numpy() if hasattr(result, "numpy") else [part.numpy() for part in result]

    return run


def _target(text: str) -> tvm.target.Target:
    """``cuda`` is this machine's device with all its limits; else what TVM makes of the text."""
    if text == "cuda":
        return tvm.target.Target.from_device("cuda")
    return tvm.target.Target(json.loads(text) if text.startswith("{") else text)


def records(folder: Path) -> int:
    """Trials in the database."""
    path = folder / "database_tuning_record.json"
    return len(path.read_text().splitlines()) if path.exists() else 0


def _module(model: Path, native: tvm.target.Target) -> tvm.IRModule:
    from tvm.relax.frontend.onnx import from_onnx

    module = from_onnx(onnx.load(str(model)))
    with native:
        return relax.get_pipeline("zero")(relax.transform.DecomposeOpsForInference()(module))


def main() -> None:
    """Entry point of the child."""
    model, folder, target, *limits = sys.argv[1:]
    trials, per_round = (*map(int, limits), *(MOST_TRIALS, PER_ROUND)[len(limits) :])
    native = _target(target)
    module = _module(Path(model), native)
    with native, tvm.transform.PassContext(opt_level=3):
        meta_schedule.relax_integration.tune_relax(
            mod=module,
            params={},
            target=native,
            work_dir=folder,
            max_trials_global=trials,
            max_trials_per_task=PER_TASK,
            num_trials_per_iter=per_round,
        )


if __name__ == "__main__":
    main()
