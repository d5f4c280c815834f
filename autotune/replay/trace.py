"""Traces: recorded measurements of many configs of one task, as ``tune replay`` reads them.

Notation: n = configs, d = knobs, k = derived features, p = passes, r = runs in a pass, b = batches in a pass.

A trace needs no TVM and no template: it holds the space it was drawn from, as data. A file holds the tasks of one
model, or one task alone. Single runs are kept as steps of ``STEP`` in ln(run / the config's median), two bytes each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from schedules.config import Config, Value
from schedules.errors import UsageError
from schedules.space import Columns, Knob, Space
from schedules.task import Task
from tuning_logs.measurement import ERROR_KINDS, Measurement

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FORMAT = 1
STEP = 5e-4
"""Resolution of a run: 0.05 %."""

MISSING = np.iinfo(np.int16).min
"""Stands for a run that was not taken."""


@dataclass(frozen=True)
class RecordedSpace(Space):
    """The configs that a trace holds of a space, as a space of its own.

    Attributes:
        recorded: (n, d) choice indices, ascending.
        table: (n, k) derived features.
        names: of the derived features.
    """

    recorded: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 0), np.int32), compare=False, repr=False)
    table: Floats = field(default_factory=lambda: np.zeros((0, 0)), compare=False, repr=False)
    names: tuple[str, ...] = ()

    @property
    def enumerated(self) -> bool:
        """Always: it is a list."""
        return True

    @property
    def rows(self) -> NDArray[np.int32]:
        """(n, d) what was recorded."""
        return self.recorded

    @cached_property
    def flat(self) -> Ints:
        """(n,) mixed-radix number of each row, ascending."""
        return self._flatten(self.recorded)

    @cached_property
    def _orders(self) -> list[tuple[Ints, Floats]]:
        """By knob: indices that sort the choices' numbers, and the sorted numbers."""
        orders = [np.argsort(knob.numeric, kind="stable") for knob in self.knobs]
        return [(order, knob.numeric[order]) for order, knob in zip(orders, self.knobs, strict=True)]

    def _flatten(self, rows: NDArray[Any]) -> Ints:
        flat = np.zeros(len(rows), dtype=np.int64)
        for column, knob in enumerate(self.knobs):
            flat = flat * len(knob.choices) + rows[:, column]
        return flat

    def _located(self, columns: Columns) -> Ints:
        flat = np.zeros(len(next(iter(columns.values()))), dtype=np.int64)
        for knob, (order, numbers) in zip(self.knobs, self._orders, strict=True):
            flat = flat * len(knob.choices) + order[np.searchsorted(numbers, columns[knob.name])]
        return np.minimum(np.searchsorted(self.flat, flat), len(self.flat) - 1), flat  # type: ignore[return-value]

    def known(self, columns: Columns) -> NDArray[np.bool_]:
        """(n,) which rows were recorded: the constraint."""
        places, flat = self._located(columns)
        return np.asarray(self.flat[places] == flat)

    def derived(self, columns: Columns) -> Mapping[str, Floats]:
        """Features of recorded rows: what ``derive`` gave when they were recorded."""
        places, _ = self._located(columns)
        return {name: self.table[places, column] for column, name in enumerate(self.names)}

    def index(self, config: Config) -> int:
        """Row number of a recorded config."""
        return int(np.searchsorted(self.flat, self._flatten(self.row(config)[None, :]))[0])


def recorded_space(
    name: str,
    version: int,
    knobs: Sequence[Knob],
    rows: NDArray[np.int32],
    table: Floats,
    names: Sequence[str],
    first: Sequence[int],
    saving: float = 1.0,
) -> RecordedSpace:
    """A space of the recorded ``rows`` (n, d), ascending; ``first``: row numbers of the first guesses."""
    bare = RecordedSpace(name, version, tuple(knobs), recorded=rows, table=table, names=tuple(names))
    guesses = tuple(bare.config(rows[index]) for index in first)
    return replace(bare, constraint=bare.known, derive=bare.derived, initial=guesses, saving=saving)


@dataclass(frozen=True)
class Trace:
    """One task's recorded configs.

    Attributes:
        task: what was measured.
        space: the recorded configs.
        exhausted: whether they are the whole space.
        bound_s: roofline bound of the task, seconds.
        untuned_s: latency of the untuned program.
        compile_s: (n,) seconds of each build, failures too.
        overhead_s: (n,) seconds that loading, checking and warming up took beside the runs.
        errors: (n,) index in ``ERROR_KINDS``, −1 where there is none.
        codes: (n,) equal numbers are equal machine code.
        true_s: (n,) best estimate of the latency over all passes, corrected for the machine's speed; NaN on failure.
        runs_s: (n, p, r) single runs, NaN where none was taken.
        controls: (n, p, r) the control's runs in turn with them, as shares of its median: the machine's slowness at
            that moment.
    """

    task: Task
    space: RecordedSpace
    exhausted: bool
    bound_s: float
    untuned_s: float
    compile_s: Floats
    overhead_s: Floats
    errors: NDArray[np.int8]
    codes: Ints
    true_s: Floats
    runs_s: Floats
    controls: Floats

    @property
    def best_s(self) -> float:
        """Least true latency."""
        return float(np.nanmin(self.true_s))

    def series(self, index: int, start: int) -> tuple[Floats, Floats]:
        """Runs (m,) of a config from pass ``start`` on, and the control's (m,) in turn with them; round and round."""
        runs, taken, order = self._from(index, start)
        return runs, self.controls[index, order].ravel()[taken]

    def levelled(self, index: int, start: int) -> Floats:
        """Runs (m,) of a config from pass ``start`` on, as they were beside others at the machine's usual speed."""
        runs, taken, order = self._from(index, start)
        levels: Floats = self.levels[index, order].ravel()[taken]
        return runs / levels

    def _from(self, index: int, start: int) -> tuple[Floats, NDArray[np.bool_], Ints]:
        order = (start + np.arange(self.runs_s.shape[1])) % self.runs_s.shape[1]
        runs = self.runs_s[index, order].ravel()
        taken = ~np.isnan(runs)
        return runs[taken], taken, order

    @cached_property
    def levels(self) -> Floats:
        """(n, p, r) how slow the machine was when a run was taken, as a share of its usual speed.

        The median, over the configs that ran in turn at that moment and their control, of run / true latency: what all
        of them met alike. One control alone has noise of its own, and stood last of its batch.
        """
        levels = np.full(self.runs_s.shape, math.nan)
        ratios = self.runs_s / self.true_s[:, None, None]
        for place in range(self.runs_s.shape[1]):
            timed = np.flatnonzero(~np.isnan(self.runs_s[:, place]).all(axis=1))
            batches, where = np.unique(self.controls[timed, place], axis=0, return_inverse=True)
            for batch, control in enumerate(batches):
                members = timed[where.reshape(-1) == batch]
                seen = np.vstack([ratios[members, place], control])
                known = ~np.isnan(seen).all(axis=0)
                levels[members[:, None], place, np.flatnonzero(known)] = np.nanmedian(seen[:, known], axis=0)
        return levels

    def measurement(self, index: int) -> Measurement:
        """Everything that was recorded of a config, in the order it was taken."""
        compile_s = float(self.compile_s[index])
        if self.errors[index] >= 0:
            kind: Any = ERROR_KINDS[self.errors[index]]
            return Measurement(error=kind, message="as recorded", compile_s=compile_s)
        runs, _ = self.series(index, 0)
        code = f"{self.codes[index]:x}"
        return Measurement(tuple(runs.tolist()), None, "", compile_s, float(runs.sum() + self.overhead_s[index]), code)


@dataclass(frozen=True)
class TraceFile:
    """The tasks of one model, or one task under a name of its own."""

    name: str
    machine: str
    traces: tuple[Trace, ...]


def _value(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _choice(value: Any) -> Value:
    return tuple(value) if isinstance(value, list) else value


def save_traces(path: Path, file: TraceFile) -> None:
    """Write a compressed ``.npz``."""
    arrays: dict[str, NDArray[Any]] = {}
    heads = []
    for number, trace in enumerate(file.traces):
        space = trace.space
        heads.append(
            {
                "task": asdict(trace.task),
                "space": {"name": space.name, "version": space.version, "saving": space.saving},
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
    """Compact arrays; ``_unpacked`` restores them."""
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


def _ratios(steps: NDArray[np.int16]) -> Floats:
    """Inverse of ``_steps``."""
    return np.where(steps == MISSING, np.nan, np.exp(steps.astype(np.float64) * STEP))


def load_traces(path: Path) -> TraceFile:
    """Read what ``save_traces`` wrote.

    Raises:
        UsageError: if the file is missing or no trace of this format.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            head = json.loads(arrays["head"].tobytes())
            if head["format"] != FORMAT:
                raise UsageError(f"{path} has trace format {head['format']}, this version reads {FORMAT}; record anew")
            traces = tuple(_unpacked(facts, arrays, number) for number, facts in enumerate(head["traces"]))
    except FileNotFoundError as error:
        raise UsageError(f"no trace {path}; 'python -m tests.bench.record' records some") from error
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise UsageError(f"{path} is not a trace, or damaged; give .npz files as in tests/bench/traces/") from error
    return TraceFile(head["name"], head["machine"], traces)


def _unpacked(facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], number: int) -> Trace:
    def get(name: str) -> NDArray[Any]:
        return arrays[f"{number}/{name}"]

    task = dict(facts["task"])
    task["shapes"] = tuple(tuple(shape) for shape in task["shapes"])
    task["dtypes"], task["constants"] = tuple(task["dtypes"]), tuple(task["constants"])
    knobs = [Knob(name, tuple(_choice(value) for value in values)) for name, values in facts["knobs"]]
    about = facts["space"]
    space = recorded_space(
        about["name"], about["version"], knobs, get("rows").astype(np.int32), get("table").astype(np.float64),
        facts["names"], facts["first"], about["saving"],
    )  # fmt: skip
    return Trace(
        Task(**task),
        space,
        facts["exhausted"],
        facts["bound_s"],
        facts["untuned_s"],
        get("compile_s").astype(np.float64),
        get("overhead_s").astype(np.float64),
        get("errors"),
        get("codes").astype(np.int64),
        get("true_s"),
        _ratios(get("runs")) * get("median")[:, None, None],
        _ratios(get("controls"))[get("batch")],
    )


def corrected(runs_s: Floats, controls: Floats) -> Floats:
    """(n,) latency over all passes: the median of each pass, at the machine's usual speed, then the median of those."""
    found = np.full(len(runs_s), math.nan)
    for index, (runs, slowness) in enumerate(zip(runs_s, controls, strict=True)):
        passes = [
            float(np.nanmedian(one)) / (float(np.nanmedian(slow)) if not np.isnan(slow).all() else 1.0)
            for one, slow in zip(runs, slowness, strict=True)
            if not np.isnan(one).all()
        ]
        if passes:
            found[index] = float(np.median(passes))
    return found
