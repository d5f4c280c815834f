"""The worker that reads and writes MetaSchedule's JSON, so that its parser may crash or hang without harm.

A truncated or blank line makes TVM's own reader fail as a whole or end the process. Here each record is a request of
its own.

    {"read": [workload, record]} → {"tvm", "task", "program", "target", "space", "config", "run_secs"}
    {"write": [task, program, config, target, latency_s]} → {"workload", "record"}
    anything that cannot be done → {"error": why}
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import TuningRecord, Workload

from autotune.contrib.exchange.trace_client import TraceJob
from autotune.host.fork_server import Handler
from schedules.config import Config
from schedules.graph_types import MOST_BYTES, check_program
from schedules.lower import foreign_program, lower, normalise, program_of, task_key, tvm_target
from schedules.target import Target
from schedules.templates.common.traced import replayed, trace_of, whole_trace
from schedules.traces import SPACE, TRACE, checked_trace, traced_config
from schedules.vocabulary.errors import AutotuneError, UsageError, check, last_line, named_last_line

LENGTH_BYTES = 8
"""Bytes in front of a workload's JSON, which say how long it is."""


class TraceHandler(Handler):
    """Answers requests; the last program is kept parsed, since records come in runs of one workload."""

    def __init__(self, settings: None) -> None:
        self._known: tuple[str, Any] = ("", None)

    def answer(self, job: TraceJob) -> dict[str, Any]:
        """Do one request; what is wrong with it is an answer. A crash of TVM's parsers ends the worker."""
        try:
            if "read" in job.request:
                return self._read(*job.request["read"])
            return self._write(*job.request["write"])
        except AutotuneError as error:
            return {"error": last_line(error)[:300]}
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
            return {"error": named_last_line(error, 300)}  # as TVM's parsers and ours fail on foreign text

    def _parsed(self, text: str, parse: Callable[[str], Any]) -> Any:
        if self._known[0] != text:
            self._known = (text, parse(text))
        return self._known[1]

    def _read(self, workload: object, record: object) -> dict[str, Any]:
        kept = self._parsed(json.dumps(workload), lambda _: _workload_of(workload))
        checked_trace(json.dumps(record[0] if isinstance(record, list) and record else None))
        tuning_record = TuningRecord.from_json(record, kept)
        func = normalise(_only_function(kept.mod))
        trace = trace_of(tuning_record)
        replayed(func, trace)  # what does not apply to its own program is of no use to anybody
        run_secs = [float(value) for value in tuning_record.run_secs or ()]
        target = None if tuning_record.target is None else json.loads(str(tuning_record.target))
        return {
            "tvm": tvm.__version__,
            "task": task_key(func),
            "program": program_of(func),
            "target": target,
            "space": SPACE,
            "config": traced_config(trace).to_json(),
            "run_secs": run_secs,
        }

    def _write(self, task: str, program: str, config: str, target: str, latency_s: float) -> dict[str, Any]:
        func = self._parsed(f"{task} {program}", lambda _: foreign_program(task, program))
        machine, chosen = Target.from_json(target), Config.from_json(config)
        sch = replayed(func, str(chosen[TRACE])) if chosen.space == SPACE else lower(func, chosen, machine)
        trace = whole_trace(func, sch)
        workload = Workload(tvm.IRModule({"main": func}))
        arguments = [argument.as_json() for argument in ArgInfo.from_prim_func(func)]
        described = json.loads(str(tvm_target(machine)))
        record = [json.loads(trace), [latency_s], described, _numbers(arguments)]
        return {"workload": workload.as_json(), "record": record}


def _workload_of(workload: object) -> Workload:
    """MetaSchedule's workload, ``[hash, base64 of a length and a program's JSON]``.

    Raises:
        ScheduleError: if it is another thing.
    """
    check(isinstance(workload, list) and len(workload) == 2 and isinstance(workload[1], str), "it is no workload")
    assert isinstance(workload, list)
    check(len(workload[1]) <= 2 * MOST_BYTES, "its workload is too long")
    check_program(base64.b64decode(workload[1], validate=True)[LENGTH_BYTES:].decode())
    return Workload.from_json(workload)


def _only_function(module: tvm.IRModule) -> tirx.PrimFunc:
    functions = [func for func in module.functions.values() if isinstance(func, tirx.PrimFunc)]
    if len(functions) != 1:
        raise UsageError(f"a workload holds {len(functions)} functions, not one")
    return functions[0]


def _numbers(value: Any) -> Any:
    """TVM's containers and numbers → Python's."""
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "__iter__"):
        return [_numbers(item) for item in value]
    return int(value)
