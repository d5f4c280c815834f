"""From the lines that a recording left under build/traces/ to the files that ``tune replay`` reads."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autotune.contrib.replay.trace import RecordedSpace, Trace, TraceFile
from autotune.host.machine import read_host
from autotune.host.roofline import measure_roofline
from autotune.options import Options
from autotune.tuning.run_plan import resolve_target
from costmodels.cost_model import Floats
from research.trace_writer import corrected, save_traces
from tuning_logs.measurement import ERROR_KINDS

if TYPE_CHECKING:
    from research.record import Work

TRACES = Path(__file__).parent / "traces"


def pack(path: Path, works: list[Work], runs: int, passes: int) -> None:
    """Write the file at ``path``: ``runs`` and ``passes`` bound what is kept of each config."""
    target = resolve_target(Options())
    peak = measure_roofline(target)
    traces = tuple(
        _trace(work, peak.bound_s(int(work.task.flop / work.space.saving), work.task.bytes), runs, passes)
        for work in works
    )
    machine = f"{read_host().model}, {target.threads} threads, {target.isa}"
    path.parent.mkdir(exist_ok=True)
    save_traces(path, TraceFile(path.stem, machine, traces))
    size = path.stat().st_size
    configs = sum(len(trace.true_s) for trace in traces)
    print(path.stem, len(traces), "tasks", configs, "configs", size // 1024, "KiB", flush=True)


def _trace(work: Work, bound_s: float, runs: int, passes: int) -> Trace:
    space = work.space
    lines = [line for line in work.lines("configs.jsonl") if line["row"]]
    lines.sort(key=lambda line: line["row"])  # type: ignore[arg-type,return-value]
    rows = np.array([line["row"] for line in lines], dtype=np.int32)
    columns = space.columns(rows)
    derived = space.derive(columns) if space.derive else {}
    table = np.stack(list(derived.values()), axis=1) if derived else np.zeros((len(rows), 0))
    firsts = [tuple(space.row(config).tolist()) for config in space.initial]
    places = {tuple(row): index for index, row in enumerate(rows.tolist())}
    recorded = RecordedSpace(
        space.name,
        space.version,
        space.knobs,
        saving=space.saving,
        extents=space.extents,
        recorded=rows,
        table=table,
        names=tuple(derived),
    ).with_initial([places[row] for row in firsts if row in places])
    codes = sorted({str(line["code"]) for line in lines})
    number = {code: index for index, code in enumerate(codes)}
    timed, controls, overhead_s, errors = _runs(work, number)
    controls = _levelled(timed, controls)
    code = np.array([number[str(line["code"])] for line in lines])
    broken = np.array([-1 if line["error"] is None else ERROR_KINDS.index(str(line["error"])) for line in lines])
    kinds = np.where(broken >= 0, broken, errors[code]).astype(np.int8)
    true_s = np.where(kinds < 0, _true_s(timed, controls, passes)[code], math.nan)
    facts = json.loads((work.folder / "facts.json").read_text())
    exhausted = space.enumerated and len(rows) == len(space.rows)
    return Trace(
        work.task, recorded, exhausted, bound_s, facts["untuned_s"],
        np.array([line["compile_s"] for line in lines], dtype=np.float64), overhead_s[code], kinds, code, true_s,
        timed[code, :passes, :runs], controls[code, :passes, :runs],
    )  # fmt: skip


def _runs(work: Work, number: dict[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """By code: runs (n, p, r) in seconds, the control's shares, the overhead (n,), the kind of error (n,)."""
    lines = work.lines("passes.jsonl")
    later = {line["code"] for line in lines if line["pass"] and "code" in line}
    # what the scouts found counts only for what was too slow to be timed again
    lines = [line for line in lines if line["pass"] or line["error"] or line["code"] not in later]
    depth = max((int(line["pass"]) for line in lines), default=1)  # type: ignore[call-overload]
    width = max((len(line["runs"]) for line in lines), default=1)  # type: ignore[arg-type]
    runs = np.full((len(number), depth, width), math.nan)
    controls = np.full((len(number), depth, width), math.nan)
    overhead: list[list[float]] = [[] for _ in number]
    errors = np.full(len(number), -1)
    control = {(line["pass"], line["batch"]): line["runs"] for line in lines if "control" in line}
    level = float(np.median(np.concatenate([np.array(taken) for taken in control.values()]))) if control else 1.0
    for line in lines:
        if "control" in line or str(line["code"]) not in number:
            continue
        index, place = number[str(line["code"])], max(int(line["pass"]) - 1, 0)  # type: ignore[call-overload]
        taken = np.array(line["runs"], dtype=np.float64) * 1e-9
        if line["error"] is not None:
            errors[index] = ERROR_KINDS.index(str(line["error"]))
            continue
        runs[index, place, : len(taken)] = taken
        shares = np.array(control.get((line["pass"], line["batch"]), []), dtype=np.float64)[: len(taken)] / level
        controls[index, place, : len(shares)] = shares
        overhead[index].append(max(0.0, float(line["spent_s"]) - float(taken.sum())))  # type: ignore[arg-type]
    return runs, controls, np.array([np.median(values) if values else 0.0 for values in overhead]), errors


def _levelled(runs: Floats, controls: Floats) -> Floats:
    """``controls`` (n, p, r), filled in for passes in which the fastest ran in turn without a control.

    There each is its rivals' control: in every round, the median over configs of run / what the config took in the
    passes before. The order was drawn anew for each pass, so neighbours in the caches do not stay the same.
    """
    alone = np.isnan(controls).all(axis=(0, 2)) & ~np.isnan(runs).all(axis=(0, 2))
    first = int(np.argmax(alone)) if alone.any() else runs.shape[1]
    before = corrected(runs[:, :first], controls[:, :first])
    filled = controls.copy()
    for place in np.flatnonzero(alone):
        level = np.nanmedian(runs[:, place] / before[:, None], axis=0)
        filled[:, place] = np.where(np.isnan(runs[:, place]), math.nan, level)
    return filled


def _true_s(runs: Floats, controls: Floats, general: int) -> Floats:
    """(n,) latency over all passes; of configs that were in the extra passes after the ``general`` ones, over those."""
    everywhere = corrected(runs[:, :general], controls[:, :general])
    extra = corrected(runs[:, general:], controls[:, general:])
    return np.where(np.isnan(extra), everywhere, extra)
