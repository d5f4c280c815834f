"""Traces: recorded measurements of many configs of one task, as ``tune replay`` reads them.

Notation: n = configs, d = knobs, k = derived features, p = passes, r = runs in a pass, b = batches in a pass.

A trace needs no TVM and no template: it holds the space it was drawn from, as data. A file holds the tasks of one
model, or one task alone. Single runs are kept as steps of ``STEP`` in ln(run / the config's median), two bytes each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from costmodels.cost_model import Floats
from schedules.config import Config, Value
from schedules.space import Knob, Space
from schedules.task import Task
from schedules.vocabulary.bounded import DAMAGE, parsed_json
from schedules.vocabulary.errors import LogError

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

    def with_initial(self, places: Sequence[int]) -> RecordedSpace:
        """The same space with the rows of these numbers as initial configs."""
        return replace(self, initial=tuple(self.config(self.recorded[place]) for place in places))

    def index(self, config: Config) -> int:
        """Row number of a recorded config."""
        return int(self.places(self.row(config)[None, :])[0])

    def allowed(self, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """(m,) which of ``rows`` (m, d) were recorded."""
        near = np.minimum(self.places(rows), len(self.recorded) - 1)
        return np.asarray((self.recorded[near] == rows).all(axis=1))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """(d + k,) names of the columns of ``features``."""
        return (*(knob.name for knob in self.knobs), *self.names)

    def row_features(self, rows: NDArray[np.int32]) -> Floats:
        """(m, d + k) encoded knobs of recorded ``rows``, and what ``derive`` gave when they were recorded."""
        return np.concatenate([self._encode_rows(rows), self.table[self.places(rows)]], axis=1)


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
        isa: instruction set that the kernels were compiled for.
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
    isa: str = "generic"

    @property
    def best_s(self) -> float:
        """Least true latency."""
        return float(np.nanmin(self.true_s))

    def series(self, index: int, start: int) -> tuple[Floats, Floats]:
        """Runs (m,) of a config from pass ``start`` on, and the machine's ``levels`` (m,) at each; round and round."""
        runs, taken, order = self._from(index, start)
        return runs, self.levels[index, order].ravel()[taken]

    def levelled(self, index: int, start: int) -> Floats:
        """Runs (m,) of a config from pass ``start`` on, corrected to the machine's usual speed."""
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
        """(n, p, r) how slow the machine was when a run was taken, as a multiple of its usual time.

        The median of run / true latency over the configs that ran in turn at that moment and their control. One control
        alone has noise of its own, and was always last of its batch.
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


@dataclass(frozen=True)
class TraceFile:
    """The tasks of one model, or one task under a name of its own."""

    name: str
    machine: str
    traces: tuple[Trace, ...]


def _choice(value: Any) -> Value:
    return tuple(value) if isinstance(value, list) else value


def _ratios(steps: NDArray[np.int16]) -> Floats:
    """Ratios of int16 steps of ln ratio; MISSING is NaN."""
    return np.where(steps == MISSING, np.nan, np.exp(steps.astype(np.float64) * STEP))


def load_traces(path: Path) -> TraceFile:
    """Read a trace file.

    Raises:
        LogError: if the file is missing or not a trace of this format.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            head = parsed_json(arrays["head"].tobytes())
            if head["format"] != FORMAT:
                raise LogError(f"{path} has trace format {head['format']}, this version reads {FORMAT}; record anew")
            isa = head["machine"].split(", ")[-1]
            traces = tuple(_unpacked(facts, isa, arrays, number) for number, facts in enumerate(head["traces"]))
    except FileNotFoundError as error:
        raise LogError(f"{path} does not exist; give a trace, such as those in the sources' research/traces") from error
    except (*DAMAGE, BadZipFile) as error:
        raise LogError(
            f"{path} is not a trace, or it is damaged; give one such as those in the sources' research/traces"
        ) from error
    return TraceFile(head["name"], head["machine"], traces)


def _unpacked(facts: Mapping[str, Any], isa: str, arrays: Mapping[str, NDArray[Any]], number: int) -> Trace:
    def get(name: str) -> NDArray[Any]:
        return arrays[f"{number}/{name}"]

    task = dict(facts["task"])
    task["shapes"] = tuple(tuple(shape) for shape in task["shapes"])
    task["dtypes"], task["constants"] = tuple(task["dtypes"]), tuple(task["constants"])
    about = facts["space"]
    space = RecordedSpace(
        about["name"],
        about["version"],
        tuple(Knob(name, tuple(_choice(value) for value in values)) for name, values in facts["knobs"]),
        saving=about["saving"],
        extents=tuple(about.get("extents", ())),
        recorded=get("rows").astype(np.int32),
        table=get("table").astype(np.float64),
        names=tuple(facts["names"]),
    )
    return Trace(
        Task(**{**task, "numbers": tuple(task.get("numbers", ()))}),
        space.with_initial(facts["first"]),
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
        isa,
    )
