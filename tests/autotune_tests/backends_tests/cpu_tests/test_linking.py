"""Kernels from the workers' object files into one library."""

import pytest
import tvm

from autotune.artifact.plan import Choice, Plan
from autotune.backends.cpu import linking
from autotune.backends.cpu.linking import CORE, CORE_OPTIONS, compile_kernels, link_kernels
from autotune.host.compilers import compile_with
from autotune.measure.measurer import symbol_of
from schedules.lower import BASELINE
from schedules.space import Knob, Space
from schedules.vocabulary.errors import MeasureError
from tests.autotune_tests.tiny import target, tiny_program


@pytest.fixture(scope="module")
def program(tiny_built):
    return tiny_program(tiny_built.model)


def plan_with(program, configs=None):
    chosen = configs or {}
    return Plan(target(), tuple(Choice(task.key, chosen.get(task.key, BASELINE), None) for task in program.tasks))


@pytest.fixture(scope="module")
def kernels(program, measurer):
    return compile_kernels(program, plan_with(program), measurer)


def test_every_task_has_an_object_under_its_symbol(program, kernels):
    assert set(kernels) == {symbol_of(task.key) for task in program.tasks}
    for symbol, path in kernels.items():
        assert symbol.encode() in path.read_bytes()


def test_what_is_compiled_is_not_compiled_again(program, measurer, kernels):
    stamps = {path: path.stat().st_mtime_ns for path in kernels.values()}
    assert compile_kernels(program, plan_with(program), measurer) == kernels
    assert {path: path.stat().st_mtime_ns for path in kernels.values()} == stamps


def test_another_config_is_another_object_under_the_same_symbol(program, measurer, kernels):
    task = max(program.tasks, key=lambda task: task.flop)
    tuned = compile_kernels(program, plan_with(program, {task.key: program.spaces[task.key].initial[0]}), measurer)
    changed = {symbol for symbol, path in tuned.items() if path != kernels[symbol]}
    assert changed == {symbol_of(task.key)}
    assert tuned[symbol_of(task.key)].read_bytes() != kernels[symbol_of(task.key)].read_bytes()


def test_a_kernel_that_does_not_compile_is_named(program, measurer):
    task = max(program.tasks, key=lambda task: task.flop)
    space = Space("nowhere", 1, (Knob("x", (1,)),))
    with pytest.raises(MeasureError, match=rf"{task.name} does not compile \(lower_error: .*tune it with another"):
        compile_kernels(program, plan_with(program, {task.key: space.config(space.rows[0])}), measurer)


def test_a_library_of_kernels_has_every_symbol(kernels, tmp_path):
    link_kernels(kernels, tmp_path / "kernels.so")
    library = tvm.runtime.load_module(str(tmp_path / "kernels.so"))
    assert all(callable(library[symbol]) for symbol in kernels)


def test_the_core_is_compiled_once(kernels, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    commands = []

    def compile_and_note(arguments, architecture=""):
        commands.append(arguments)
        compile_with(arguments, architecture)

    monkeypatch.setattr(linking, "compile_with", compile_and_note)
    for name in ("first", "second"):
        link_kernels(kernels, tmp_path / f"{name}.so")
    assert sum(str(CORE) in arguments for arguments in commands) == 1
    assert (tmp_path / "first.so").read_bytes() == (tmp_path / "second.so").read_bytes()
    monkeypatch.setattr(linking, "CORE_OPTIONS", (*CORE_OPTIONS, "-DOTHER"))
    link_kernels(kernels, tmp_path / "third.so")
    assert sum(str(CORE) in arguments for arguments in commands) == 2
