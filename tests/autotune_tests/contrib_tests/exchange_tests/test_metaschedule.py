"""Records go out to plain TVM and come back; what its parser does to bad files stays in its process."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autotune.artifact.make_plan import record_key
from autotune.contrib.exchange.metaschedule import RECORDS, TARGET, WORKLOADS, export_databases, import_databases
from schedules.config import Config
from schedules.lower import BASELINE, load_program, lower
from schedules.target import Target
from schedules.templates.common.prefetch import without_prefetches
from schedules.templates.common.traced import MORE, replayed, trace_of, whole_trace
from schedules.traces import SPACE, TRACE, traced_config
from schedules.vocabulary.errors import LogError, ScheduleError
from tests.autotune_tests.tiny import save_tiny, target, tiny_program
from tuning_logs.measurement import Measurement
from tuning_logs.record import TuningRecord
from tuning_logs.sql_store import memory_log

PLAIN_TVM = Path(__file__).with_name("plain_tvm.py")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return tiny_program(save_tiny(tmp_path_factory.mktemp("tiny") / "tiny.onnx"))


def log_of(program, configs=2):
    """A log with ``configs`` timed configs of every task that is scheduled by instructions alone, fastest first."""
    log = memory_log()
    log.add_target(target())
    for task in program.tasks:
        log.add_workload(task.key, program.programs[task.key])
        if task.template in (
            "rows",
            "elementwise",
        ):  # divisions become products, strided rows loops
            continue
        space = program.spaces[task.key]
        chosen = [config for config in space.initial if dict(config.items).get("algorithm", 0) == 0][:configs]
        for index, config in enumerate(chosen):
            log.append([TuningRecord(record_key(task, space, target()), config, Measurement((1e-5 * (index + 1),)))])
    return log


@pytest.fixture(scope="module")
def exported(program, tmp_path_factory):
    """(log, folder of the database)."""
    log = log_of(program)
    folder = tmp_path_factory.mktemp("exported")
    report = export_databases(log, folder)
    assert report.skipped == {}
    assert report.databases == {str(folder / target().fingerprint): len(list(log.records()))}
    return log, folder / target().fingerprint


def script_of(func, config):
    """The text of ``func`` scheduled by ``config``, without the prefetches that plain TVM would not gain by."""
    module = lower(func, config, target()).mod
    module["main"] = without_prefetches(module["main"])
    return str(module.script())


def test_plain_tvm_builds_the_same_kernels(program, exported):
    log, folder = exported
    run = [sys.executable, str(PLAIN_TVM), str(folder)]
    kernels = json.loads(subprocess.run(run, check=True, capture_output=True, text=True, cwd="/").stdout)
    ours = [
        script_of(load_program(log.workload(record.key.task)), record.config)
        for key in log.counts()
        for record in log.fastest(key, 9)
    ]
    assert sorted(kernel["script"] for kernel in kernels) == sorted(ours)
    assert all(kernel["difference"] <= 1e-4 * kernel["scale"] for kernel in kernels)
    fastest = {script_of(load_program(log.workload(key.task)), log.best(key).config) for key in log.counts()}
    assert fastest <= {kernel["script"] for kernel in kernels if kernel["best"]}  # two configs may give one program


def test_what_was_exported_comes_back_as_traces(program, exported):
    log, folder = exported
    copy = memory_log()
    report = import_databases(folder, copy, when=7.0)
    assert (report.bad, report.records, report.new_records) == ([], len(list(log.records())), report.records)
    assert set(dict(copy.workloads())) == {key.task for key in log.counts()}
    assert copy.targets() == log.targets()
    for record in copy.records():
        assert (record.key.space, record.when, record.provenance) == (SPACE, 7.0, {"source": "metaschedule"})
        func = load_program(copy.workload(record.key.task))
        scheduled = str(replayed(func, record.config[TRACE]).mod.script())
        twins = [r for r in log.records() if r.key.task == record.key.task]
        assert scheduled in [script_of(func, twin.config) for twin in twins]
        with pytest.raises(ScheduleError, match="no template of this function"):  # nothing is built from a trace
            lower(func, record.config, target())
    assert import_databases(folder.parent, copy, when=7.0).new_records == 0  # a folder of databases will do


def test_a_database_of_metaschedule_itself_is_read(program, tmp_path):
    from tvm import IRModule
    from tvm.s_tir import Schedule
    from tvm.s_tir.meta_schedule import database as ms
    from tvm.target import Target as TvmTarget

    func = load_program(program.programs[program.tasks[0].key])
    schedule = Schedule(func)
    schedule.parallel(schedule.get_loops(schedule.get_sblock("conv2d"))[0])
    theirs = ms.JSONDatabase(str(tmp_path / WORKLOADS), str(tmp_path / RECORDS))
    workload = theirs.commit_workload(IRModule({"main": func}))
    machine = TvmTarget({"kind": "llvm", "mcpu": "haswell", "num-cores": 4})
    theirs.commit_tuning_record(ms.TuningRecord(schedule.trace, workload, [2e-3, 4e-3], machine))
    theirs.commit_tuning_record(ms.TuningRecord(schedule.trace, workload, [1e10], machine))
    log = memory_log()
    report = import_databases(tmp_path, log, when=1.0)
    assert [bad.reason for bad in report.bad] == ["it was never timed"]
    (record,) = log.records()
    assert record.measurement.latencies_s == pytest.approx((2e-3, 4e-3))
    assert log.targets()[record.key.target] == Target("llvm", "avx2", "haswell", threads=4)
    assert record.key.task == program.tasks[0].key
    assert replayed(func, record.config[TRACE]).mod.script() == schedule.mod.script()


def test_kernels_that_are_more_than_schedules_are_skipped_and_counted(program, tmp_path):
    log = log_of(program, configs=1)
    task = next(task for task in program.tasks if task.template == "conv2d")
    space = program.spaces[task.key]
    winograd = next(space.config(row) for row in space.rows if space.config(row)["algorithm"] == 2)
    key = record_key(task, space, target())
    func = load_program(program.programs[task.key])
    with pytest.raises(ScheduleError):
        whole_trace(func, lower(func, winograd, target()))
    log.append([TuningRecord(key, winograd, Measurement((1e-6,)))])
    log.append([TuningRecord(dataclasses.replace(key, task="lost"), winograd, Measurement((1e-6,)))])
    log.append([TuningRecord(dataclasses.replace(key, target="unheard"), winograd, Measurement((1e-6,)))])
    rows = next(task for task in program.tasks if task.template == "rows")
    space = program.spaces[rows.key]
    log.append([TuningRecord(record_key(rows, space, target()), space.initial[0], Measurement((1e-6,)))])
    report = export_databases(log, tmp_path)
    assert sum(report.databases.values()) == len(list(log.records())) - 4
    assert report.skipped == {
        MORE: 2,
        "the log does not hold its program": 1,
        "the log does not describe target unheard": 1,
    }


def damaged(folder, tmp_path, change):
    """A copy of the database with ``change`` applied to its lines of records."""
    copy = tmp_path / "copy"
    copy.mkdir(exist_ok=True)
    for name in (WORKLOADS, TARGET):
        (copy / name).write_bytes((folder / name).read_bytes())
    lines = (folder / RECORDS).read_text().splitlines()
    (copy / RECORDS).write_text("".join(line + "\n" for line in change(lines)))
    return copy


BAD = {
    "": "not JSON",
    '[0, [[["Get': "not JSON",
    "[]": "not a pair",
    "[99, []]": "names workload 99",
    "[-1, []]": "names workload -1",
    '["0", []]': "not a pair",
    "[0, []]": "",
    "[0, 7]": "",
    "[0, [[[], []], [], {}, []]]": "",
    "[0, [[[], []], [1.0], 7, []]]": "",
    '[0, [[[["Nonsense", [], [], ["b0"]]], []], [1.0], {"kind": "llvm"}, []]]': "",
}


def test_bad_lines_are_located_and_good_ones_kept(exported, tmp_path):
    log, folder = exported
    copy = damaged(folder, tmp_path, lambda lines: [*BAD, *lines])
    kept = memory_log()
    report = import_databases(copy, kept, when=1.0)
    assert [bad.number for bad in report.bad] == list(range(1, len(BAD) + 1))
    assert all(words in bad.reason for bad, words in zip(report.bad, BAD.values(), strict=True))
    assert not any("\n" in bad.reason for bad in report.bad)
    assert report.records == len(list(log.records()))


def test_a_bad_workload_costs_its_own_records_only(exported, tmp_path):
    log, folder = exported
    copy = damaged(folder, tmp_path, lambda lines: lines)
    workloads = (folder / WORKLOADS).read_text().splitlines()
    workloads[0] = workloads[0][: len(workloads[0]) // 2]
    (copy / WORKLOADS).write_text("\n".join(workloads) + "\n")
    report = import_databases(copy, memory_log(), when=1.0)
    hit = sum(json.loads(line)[0] == 0 for line in (folder / RECORDS).read_text().splitlines())
    assert (len(report.bad), report.records) == (hit, len(list(log.records())) - hit)


def test_mutated_records_never_end_the_import(exported, tmp_path):
    log, folder = exported
    rng = np.random.default_rng(5)

    def mutated(line):
        text = list(line)
        for _ in range(rng.integers(1, 3)):
            place = int(rng.integers(len(text)))
            text[place : place + int(rng.integers(0, 4))] = rng.choice(['"', "[", "]", "7", "-1", ",", "null", "b0"])
        return "".join(text)

    lines = (folder / RECORDS).read_text().splitlines()
    copy = damaged(folder, tmp_path, lambda _: [mutated(lines[i % len(lines)]) for i in range(120)] + lines)
    report = import_databases(copy, memory_log(), when=1.0)
    assert report.lines == 120 + len(lines)
    assert report.records + len(report.bad) == report.lines
    assert all(bad.number <= 120 for bad in report.bad)
    assert len(report.bad) > 50


def test_a_folder_without_a_database_is_told(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(LogError, match=f"holds no {WORKLOADS}"):
            import_databases(folder, memory_log(), when=1.0)


def test_a_trace_is_text_that_leads_to_the_schedule(program):
    task = program.tasks[0]
    func = load_program(program.programs[task.key])
    scheduled = lower(func, BASELINE, target())
    assert whole_trace(func, scheduled) == trace_of(scheduled)
    assert Config.from_json(traced_config(trace_of(scheduled)).to_json()) == traced_config(trace_of(scheduled))
    for text in ("{", "[]", '[[["Nonsense", [], [], []]], []]', "7"):
        with pytest.raises(ScheduleError):
            replayed(func, text)
