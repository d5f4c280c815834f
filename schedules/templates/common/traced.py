"""Schedules as traces: what TVM writes down while a schedule is made.

A trace is a list of schedule instructions. Replaying it on the same program gives the same kernel, in this program or
in plain TVM; that is how kernels are exchanged with MetaSchedule. Steps that are no schedule instructions, such as
another algorithm's stages taking an anchor's place, are not in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.schedule import Trace

from schedules.templates.common.indices import exact_indices
from schedules.templates.common.prefetch import without_prefetches
from schedules.traces import checked_trace
from schedules.vocabulary.errors import ScheduleError, check, last_line

MORE = "its kernel needs more than schedule instructions"
"""Why some kernels have no trace: stages of another algorithm, arithmetic in place of a call."""


def trace_of(traced: s_tir.Schedule | TuningRecord) -> str:
    """The trace of a schedule as JSON text: ``[instructions, decisions]``, the form in MetaSchedule's databases."""
    return json.dumps(traced.trace.as_json(), default=_plain, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """TVM's containers and numbers → Python's, for ``json``."""
    if isinstance(value, tirx.IntImm | tirx.FloatImm):
        return value.value
    if isinstance(value, Mapping):
        return dict(value.items())
    if isinstance(value, Sequence):
        return list(value)
    raise ScheduleError(f"a trace holds {type(value).__name__}, which JSON cannot")


def replayed(func: tirx.PrimFunc, trace: str) -> s_tir.Schedule:
    """``func`` after the instructions of ``trace``.

    Raises:
        ScheduleError: if the text is no trace, holds more than a trace may, or does not apply to ``func``.
    """
    instructions = checked_trace(trace)
    sch = s_tir.Schedule(func)
    try:
        Trace.apply_json_to_schedule(instructions, sch)
    except (s_tir.ScheduleError, ValueError, TypeError, RuntimeError, IndexError, KeyError, AttributeError) as error:
        raise ScheduleError(f"the trace does not apply: {last_line(error)}") from error
    return sch


def whole_trace(func: tirx.PrimFunc, sch: s_tir.Schedule) -> str:
    """The trace of ``sch``, proven to lead from ``func`` to ``sch`` but for its prefetches.

    Plain TVM would store a tile's sums before each prefetch (see ``prefetch``), so it is better off without them.

    Raises:
        ScheduleError: if it does not: something else than schedule instructions had a part in ``sch``.
    """
    trace = trace_of(sch)
    try:
        leads = tvm_ffi.structural_equal(replayed(func, trace).mod["main"], without_prefetches(sch.mod["main"]))
    except ScheduleError as error:
        raise ScheduleError(MORE) from error
    check(leads, MORE)
    # Plain TVM would get such an index wrong.
    check(tvm_ffi.structural_equal(exact_indices(sch.mod["main"]), sch.mod["main"]), MORE)
    return trace
