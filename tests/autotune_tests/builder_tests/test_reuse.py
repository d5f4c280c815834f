"""What other tasks teach: first candidates and training data, never results."""

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.artifact.make_plan import record_key
from autotune.builder.reuse import ALIKE, FIRST, Reuse
from autotune.builder.shipped_posteriors import shipped_posterior
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from autotune.options import Options
from autotune.tuning import tune as tuning
from costmodels.posterior import GUESSES, likely
from schedules.target import Target
from tests.autotune_tests.fakes import fake_device
from tests.autotune_tests.tiny import target
from tuning_logs.measurement import Measurement
from tuning_logs.record import TuningRecord
from tuning_logs.similarity import Nearness
from tuning_logs.sql_store import memory_log, open_log


def save_conv(path, channels, extent=14):
    """One 3×3 convolution with a relu."""
    weight = np.random.default_rng(0).standard_normal((channels, 16, 3, 3)).astype(np.float32)
    shape = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, extent, extent])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, channels, extent, extent])
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "conv", [shape], [out], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def conv_program(path, machine):
    program = import_program(simplify(load_model(path)), machine)
    conv = next(task for task in program.tasks if task.template == "conv2d")
    return conv, program.spaces[conv.key], program.programs[conv.key]


@pytest.fixture
def convs(tmp_path):
    """Two convolutions, (task, space, program) each: 32 and 64 output channels."""
    machine = target()
    return [conv_program(save_conv(tmp_path / f"{n}.onnx", n), machine) for n in (32, 64)]


def filled(conv, machine, count=6):
    """A log with ``count`` measured configs of ``conv``, the last the fastest."""
    task, space, program = conv
    log = memory_log()
    log.add_target(machine)
    log.add_workload(task.key, program)
    rng = np.random.default_rng(1)
    for index, config in enumerate(space.sample(count, rng)):
        log.append([TuningRecord(record_key(task, space, machine), config, Measurement((1.0 / (index + 1),)))])
    return log


@pytest.mark.parametrize(("distance", "place"), [(ALIKE, 0), (ALIKE + 1.0, 1)])
def test_the_best_of_a_near_task_is_among_the_first_and_fits(convs, distance, place):
    there, (task, space, _) = convs
    log, machine = filled(there, target()), target()
    reuse = Reuse(log, machine)
    nearness = reuse.near(task, record_key(task, space, machine))
    assert [neighbour.key.task for neighbour in nearness.used] == [there[0].key]
    nearness = Nearness((dataclasses.replace(nearness.used[0], distance=distance),))
    guided = reuse.guided(space, nearness)
    assert all(space.contains(config) for config in guided.initial)
    assert set(space.initial) <= set(guided.initial)
    assert len(guided.initial) <= len(space.initial) + FIRST + GUESSES
    best = nearness.used[0].records[0].config
    shared = [name for name, value in best.items if guided.initial[place][name] == value]
    assert len(shared) > len(best.items) / 2
    assert space.initial[0] in guided.initial[:3]


def test_near_results_are_given_with_their_own_space(convs):
    there, (task, space, _) = convs
    machine = target()
    reuse = Reuse(filled(there, machine), machine)
    prior = reuse.siblings(reuse.near(task, record_key(task, space, machine)))
    assert len(prior) == 1
    assert prior[0][0] == there[1]
    assert all(there[1].contains(config) for config, _ in prior[0][1])
    assert len(prior[0][1]) == 6


def test_near_results_correct_the_posterior(convs):
    there, (task, space, _) = convs
    machine = target()
    reuse = Reuse(filled(there, machine, 32), machine)
    near = reuse.near(task, record_key(task, space, machine))
    alone, corrected = reuse.posterior(space, Nearness()), reuse.posterior(space, near)
    assert alone is shipped_posterior(space, machine.isa)
    features = space.row_features(space.rows)
    assert (corrected.deviation(features) <= alone.deviation(features) + 1e-9).all()
    assert not np.allclose(corrected.linear(features), alone.linear(features))


def test_with_nothing_near_the_shipped_posterior_takes_turns_with_the_template(tmp_path):
    machine = Target("llvm", isa="avx512", mcpu="znver4", threads=2)
    task, space, _ = conv_program(save_conv(tmp_path / "conv.onnx", 32), machine)
    reuse = Reuse(memory_log(), machine)
    assert reuse.near(task, record_key(task, space, machine)) == Nearness()
    prior = shipped_posterior(space, machine.isa)
    assert prior is not None
    liked = likely(prior, space)
    assert reuse.guided(space, Nearness()).initial[:2] == (liked[0], space.initial[0])
    assert set(reuse.guided(space, Nearness()).initial) == {*liked, *space.initial}
    assert reuse.siblings(Nearness()) == ()


def test_with_nothing_near_and_no_posterior_nothing_changes(tmp_path):
    machine = Target("llvm", isa="avx2", mcpu="haswell")
    _, space, _ = conv_program(save_conv(tmp_path / "conv.onnx", 32), machine)
    space = dataclasses.replace(space, version=space.version + 1)
    assert shipped_posterior(space, machine.isa) is None
    assert Reuse(memory_log(), machine).posterior(space, Nearness()) is None
    assert Reuse(memory_log(), machine).guided(space, Nearness()).initial == space.initial


def test_a_log_of_avx512_gives_an_avx2_machine_nothing(convs):
    there, (task, space, _) = convs
    wide = Target("llvm", isa="avx512", mcpu="sapphirerapids")
    narrow = Target("llvm", isa="avx2", mcpu="haswell")
    log = filled(there, wide)
    reuse = Reuse(log, narrow)
    same = reuse.near(there[0], record_key(there[0], there[1], narrow))
    other = reuse.near(task, record_key(task, space, narrow))
    for nearness in (same, other):
        assert nearness.used == ()
        assert "isa differs: avx512 there, avx2 here" in nearness.told()
    assert log.best(record_key(there[0], there[1], narrow)) is None


def test_a_log_of_avx2_is_near_on_avx512_and_never_a_result(convs):
    there, _ = convs
    log = filled(there, Target("llvm", isa="avx2", mcpu="haswell"))
    wide = Target("llvm", isa="avx512", mcpu="sapphirerapids")
    key = record_key(there[0], there[1], wide)
    assert Reuse(log, wide).near(there[0], key).used[0].records
    assert log.best(key) is None


def test_programs_that_cannot_be_read_are_refused_not_fatal(convs):
    there, (task, space, _) = convs
    machine = target()
    log = filled(there, machine)
    strange = dataclasses.replace(record_key(*there[:2], machine), task="strange")
    log.add_workload("strange", "{not a program")
    log.append([TuningRecord(strange, there[1].initial[0], Measurement((1.0,)))])
    nearness = Reuse(log, machine).near(task, record_key(task, space, machine))
    assert nearness.refused == ("program unknown: the log does not hold it, or holds too many to look at",)


def test_a_run_measures_near_hits_before_it_believes_them(tmp_path, monkeypatch):
    measurers = fake_device(monkeypatch)

    def options(name):
        return Options(out=tmp_path / name, log=tmp_path / "t.db", threads=1, trials=8, batch=4)

    tuning.tune(save_conv(tmp_path / "a.onnx", 32), options("a"))
    second = tuning.tune(save_conv(tmp_path / "b.onnx", 64), options("b"))
    assert sum(state.trials for state in second.states) == 8  # what both models hold is not measured again
    assert second.measured_trials < 8
    log = open_log(tmp_path / "t.db")
    task_b, space_b, _ = conv_program(tmp_path / "b.onnx", target())
    asked = [c.config for slot in measurers[1].slots for c in slot if c.task.key == task_b.key]
    reuse = Reuse(log, target())
    nearness = reuse.near(task_b, record_key(task_b, space_b, target()))
    assert nearness.used
    assert asked[0] == reuse.guided(space_b, nearness).initial[0] != space_b.initial[0]
    log.close()


def test_explain_tells_what_is_used_near_and_refused(tmp_path, capsys):
    from autotune.cli.main import main

    machine = target()
    model = save_conv(tmp_path / "a.onnx", 32)
    conv = conv_program(model, machine)
    log = open_log(tmp_path / "t.db")
    source = filled(conv_program(save_conv(tmp_path / "b.onnx", 64), machine), machine)
    for key, program in source.workloads():
        log.add_workload(key, program)
    log.add_target(machine)
    log.append(list(source.records()))
    arguments = ["log", "explain", str(model), "--threads", "1", "--log", str(tmp_path / "t.db")]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "not found: the log has no record of task" in out
    assert "1 other task is near enough to learn from" in out
    log.append(list(filled(conv, machine).records()))
    log.close()
    assert main(arguments) == 0
    assert "used: 166666.7 µs on an unnamed machine, the best of 6 records" in capsys.readouterr().out
    if machine.isa in ("avx512", "amx"):
        assert main([*arguments, "--target", '{"isa": "avx2"}']) == 0
        out = capsys.readouterr().out
        assert f"isa differs: {machine.isa} there, avx2 here" in out
        assert "\n0 of " in out
