"""Programs of a log are read in a fork; those of another task, and nonsense, are refused in a line."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.importer.foreign_programs import ForeignPrograms
from autotune.importer.kernel_passes import describe
from schedules.lower import claim, normalise, program_of, task_key
from schedules.target import Target
from tests.schedules_tests.cases import CASES
from tuning_logs.record import RecordKey
from tuning_logs.similarity import Signature

TARGET = Target.cpu("znver4", 2)
CASE = next(case for case in CASES if claim(normalise(case.func), TARGET).space.knobs)
FUNC = normalise(CASE.func)
KEY, PROGRAM = task_key(FUNC), program_of(FUNC)


@pytest.fixture(scope="module")
def programs():
    with ForeignPrograms() as opened:
        yield opened


def test_a_program_is_its_tasks(programs):
    task = describe(FUNC, "-", "-", "-", ())
    assert programs.refusal(KEY, PROGRAM) == ""
    assert programs.signature(KEY, PROGRAM) == Signature(task.shapes, task.dtypes)


@pytest.mark.parametrize("text", ["", "{}", PROGRAM[:-9], PROGRAM.replace("tirx.PrimFunc", "ir.EnvFunc"), "[" * 9999])
def test_nonsense_is_refused_in_a_line(programs, text):
    why = programs.refusal(KEY, text)
    assert why.isprintable()
    assert why
    assert programs.signature(KEY, text) is None
    assert programs.refusal("0" * 16, PROGRAM).startswith(f"its hash is {KEY}")


def test_a_space_comes_back_with_the_features_of_its_configs(programs):
    space = claim(FUNC, TARGET).space
    configs = space.sample(5, np.random.default_rng(0))
    key = RecordKey(KEY, TARGET.fingerprint, space.identity, "0")
    own_space, valid = programs.space(key, PROGRAM, TARGET, configs)
    assert valid == frozenset(configs)
    assert (own_space.identity, own_space.knobs, own_space.feature_names) == (
        space.identity,
        space.knobs,
        space.feature_names,
    )
    np.testing.assert_array_equal(own_space.features(configs), space.features(configs))
    other = RecordKey(KEY, TARGET.fingerprint, "other/1", "0")
    assert programs.space(other, PROGRAM, TARGET, configs) is None
