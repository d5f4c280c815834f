"""Kernels of a lane: only its own tasks are planned, all others are left untuned."""

from pathlib import Path

import onnx

from autotune.artifact.make_plan import record_key
from autotune.builder.build_request import BuildRequest, LaneKernels
from autotune.graph.lanes import cpu_lane
from autotune.options import Options
from schedules.lower import BASELINE
from tests.autotune_tests.tiny import target, tiny_program
from tuning_logs.measurement import Measurement
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import memory_log


def test_only_own_tasks_are_planned(tiny_built):
    program = tiny_program(tiny_built.model)
    own, *others = [task for task in program.tasks if program.spaces[task.key].knobs]
    log = memory_log()
    for task in (own, *others):
        space = program.spaces[task.key]
        measured = Measurement(latencies_s=(1e-6,))
        log.append([TuningRecord(record_key(task, space, target()), space.initial[0], measured, "", 0.0, "host")])
    kernels = LaneKernels(target(), program, frozenset({own.key}), None)
    assert [task.key for task in kernels.tunable.tasks] == [own.key]
    plan = kernels.plan(log, frozen=False, most_loss=9)
    assert [choice.task for choice in plan.choices] == sorted(task.key for task in program.tasks)
    assert plan.config(own.key) == program.spaces[own.key].initial[0]
    assert all(plan.config(task.key) == BASELINE for task in others)


def test_lanes_by_name_have_no_kernels_for_all_threads(tiny_built):
    program = tiny_program(tiny_built.model)
    kernels = {1: LaneKernels(target(), program, frozenset(), None)}

    def request(threads):
        whole = type(target())(**{**vars(target()), "threads": threads})
        lanes = (cpu_lane(0, 1),)
        return BuildRequest(
            Path("out"), onnx.ModelProto(), Path("model"), whole, kernels, lanes, memory_log(), Options()
        )

    assert request(2).whole is None
    assert request(1).whole is kernels[1]
    assert request(2).program is program
