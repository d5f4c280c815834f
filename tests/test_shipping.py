"""What tests build is what a run ships: assembly where a template writes it, from the code cache the second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.host.machine import host_target
from autotune.importer.load import load_model
from autotune.importer.program import Program, import_program, simplify
from autotune.measure.kernel_builder import Builder
from autotune.measure.measurer import Candidate
from schedules.config import Config
from schedules.lower import BASELINE
from schedules.vocabulary.errors import CompileError
from tests import shipping
from tests.models import cached
from tests.shipping import InlineMeasurer, first_guesses, is_assembled, plan_of, random_configs, untuned_plan

TARGET = host_target(1)


@pytest.fixture(scope="module")
def program() -> Program:
    return import_program(simplify(load_model(cached("tiny_mlp"))), TARGET)


def candidates(program: Program, configs: dict[str, Config]) -> list[Candidate]:
    return [Candidate(task, program.programs[task.key], configs[task.key]) for task in program.tasks]


@pytest.mark.isa("avx512")
def test_first_guesses_of_products_are_assembled_and_untuned_kernels_are_compiled(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "user_cache", lambda: tmp_path / "cache")
    untuned = dict.fromkeys((task.key for task in program.tasks), BASELINE)
    for configs, assembled in ((first_guesses(program, TARGET), len(program.tasks)), (untuned, 0)):
        measurer = InlineMeasurer(TARGET, tmp_path)
        paths = measurer.objects(candidates(program, configs))
        assert (measurer.assembled, measurer.compiled) == (assembled, len(program.tasks) - assembled)
        assert [is_assembled(path.read_bytes()) for path in paths] == [assembled > 0] * len(paths)


def test_kernels_built_before_come_from_the_cache(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "user_cache", lambda: tmp_path / "cache")
    wanted = candidates(program, first_guesses(program, TARGET))
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first = InlineMeasurer(TARGET, tmp_path / "one")
    objects = [path.read_bytes() for path in first.objects(wanted)]
    for name in ("compile", "assemble"):
        monkeypatch.setattr(Builder, name, None)  # whatever calls it fails
    second = InlineMeasurer(TARGET, tmp_path / "two")
    assert [path.read_bytes() for path in second.objects(wanted)] == objects
    assert (second.assembled, second.compiled) == (first.assembled, first.compiled)


def test_a_kernel_that_cannot_be_built_is_named(program: Program, tmp_path: Path) -> None:
    task = program.tasks[0]
    with pytest.raises(CompileError, match=f"{task.name}.*lower_error"):
        InlineMeasurer(TARGET, tmp_path).objects([Candidate(task, program.programs[task.key], Config("none/1", ()))])


def test_random_configs_depend_on_the_task_and_the_seed_alone(program: Program) -> None:
    assert random_configs(program, TARGET, 3) == random_configs(program, TARGET, 3)
    assert any(random_configs(program, TARGET, 3) != random_configs(program, TARGET, seed) for seed in range(4, 8))
    plan = plan_of(random_configs(program, TARGET, 3), TARGET)
    assert {choice.task for choice in plan.choices} == {task.key for task in program.tasks}
    assert all(choice.config == BASELINE for choice in untuned_plan(program, TARGET).choices)
