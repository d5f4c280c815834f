"""Writes recorded traces as the files that ``autotune.contrib.replay.trace`` reads."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.contrib.replay.trace import FORMAT, MISSING, STEP, Trace, TraceFile
from costmodels.cost_model import Floats
from schedules.config import Value


def _value(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


def save_traces(path: Path, file: TraceFile) -> None:
    """Write a compressed ``.npz``."""
    arrays: dict[str, NDArray[Any]] = {}
    heads = []
    for number, trace in enumerate(file.traces):
        space = trace.space
        heads.append(
            {
                "task": asdict(trace.task),
                "space": {
                    "name": space.name,
                    "version": space.version,
                    "saving": space.saving,
                    "extents": space.extents,
                },
                "knobs": [[knob.name, [_value(choice) for choice in knob.choices]] for knob in space.knobs],
                "names": list(space.names),
                "first": [space.index(config) for config in space.initial],
                "exhausted": trace.exhausted,
                "bound_s": trace.bound_s,
                "untuned_s": trace.untuned_s,
            }
        )
        arrays |= {f"{number}/{name}": array for name, array in _packed(trace).items()}
    head = {"format": FORMAT, "name": file.name, "machine": file.machine, "traces": heads}
    arrays["head"] = np.frombuffer(json.dumps(head).encode(), dtype=np.uint8)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def _packed(trace: Trace) -> dict[str, NDArray[Any]]:
    """Compact arrays, as ``autotune.contrib.replay.trace`` unpacks them."""
    median = np.ones(len(trace.runs_s))
    timed = ~np.isnan(trace.runs_s).all(axis=(1, 2))
    median[timed] = np.nanmedian(trace.runs_s[timed], axis=(1, 2))
    batches, where = np.unique(trace.controls, axis=0, return_inverse=True)
    return {
        "rows": trace.space.recorded.astype(np.int16),
        "table": trace.space.table.astype(np.float32),
        "compile_s": trace.compile_s.astype(np.float32),
        "overhead_s": trace.overhead_s.astype(np.float32),
        "errors": trace.errors,
        "codes": trace.codes.astype(np.int32),
        "true_s": trace.true_s.astype(np.float64),
        "median": median,
        "runs": _steps(trace.runs_s / median[:, None, None]),
        "controls": _steps(batches),
        "batch": where.reshape(-1).astype(np.int32),
    }


def _steps(ratios: Floats) -> NDArray[np.int16]:
    """int16 steps of ln ratio, NaN as MISSING."""
    with np.errstate(invalid="ignore"):
        steps = np.clip(np.round(np.log(ratios) / STEP), -32767, 32767)
    return np.where(np.isnan(ratios), MISSING, steps).astype(np.int16)


def corrected(runs_s: Floats, controls: Floats) -> Floats:
    """(n,) latency over all passes: the median of each pass, at the machine's usual speed, then the median of those."""
    medians = np.full(len(runs_s), math.nan)
    for index, (runs, slowness) in enumerate(zip(runs_s, controls, strict=True)):
        passes = [
            float(np.nanmedian(one)) / (float(np.nanmedian(slow)) if not np.isnan(slow).all() else 1.0)
            for one, slow in zip(runs, slowness, strict=True)
            if not np.isnan(one).all()
        ]
        if passes:
            medians[index] = float(np.median(passes))
    return medians
