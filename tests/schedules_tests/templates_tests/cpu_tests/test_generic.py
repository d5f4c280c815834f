"""TVM's design space as knobs: what is claimed can be built, and every process draws the same space."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tvm.relax import op

from schedules.config import Config
from schedules.lower import claim, load_program, lower, program_of
from schedules.target import Target
from schedules.templates.cpu.generic import LEAST
from schedules.vocabulary.errors import ScheduleError
from tests.schedules_tests.cases import GENERIC
from tests.schedules_tests.programs import Case, relax_case

TARGET = Target(kind="llvm", isa="avx512", threads=2)

ELSEWHERE = """
import sys
from schedules.config import Config
from schedules.lower import claim, load_program, lower
from schedules.target import Target
target = Target(kind="llvm", isa="avx512", threads=2)
func = load_program(sys.argv[1])
space = claim(func, target).space
for text in sys.argv[2:]:
    config = Config.from_json(text)
    assert space.contains(config)
    print(lower(func, config, target).mod.script(show_meta=False))
assert "tvm.s_tir.tensor_intrin" not in sys.modules, "the slow import must not happen"
"""


@pytest.mark.parametrize("case", GENERIC[:3], ids=lambda case: case.name)
def test_another_process_replays_configs_to_the_same_programs(case: object) -> None:
    func = case.func  # type: ignore[attr-defined]
    configs = claim(func, TARGET).space.sample(3, np.random.default_rng(3))
    expected = "".join(lower(func, config, TARGET).mod.script(show_meta=False) + "\n" for config in configs)
    command = [sys.executable, "-c", ELSEWHERE, program_of(func), *(config.to_json() for config in configs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected


def test_knobs_are_the_numbers_that_sketches_draw() -> None:
    space = claim(GENERIC[0].func, TARGET).space
    names = [knob.name for knob in space.knobs]
    assert names[0] == "sketch"
    assert any(name.startswith("tile4x12") for name in names)
    assert any(name.startswith("unroll") for name in names)
    assert all(len(knob.choices) > 1 for knob in space.knobs[1:])
    assert {config.integer("sketch") for config in space.initial} == set(space.knobs[0].choices)


def test_a_sketch_the_function_does_not_have_is_an_illegal_candidate() -> None:
    func = GENERIC[0].func
    config = claim(func, TARGET).space.initial[0]
    beyond = Config(config.space, tuple((name, 99 if name == "sketch" else value) for name, value in config.items))
    with pytest.raises(ScheduleError, match="sketch is 99"):
        lower(func, beyond, TARGET)


def test_a_tiling_of_another_extent_is_an_illegal_candidate() -> None:
    func = GENERIC[0].func
    config = claim(func, TARGET).space.initial[0]
    wrong = tuple((name, (5, 5, 5, 5) if name.startswith("tile4") else value) for name, value in config.items)
    with pytest.raises(ScheduleError, match="does not offer"):
        lower(func, Config(config.space, wrong), TARGET)


def case_of(name: str) -> Case:
    return next(case for case in GENERIC if case.name == name)


def test_a_mean_inside_of_the_variance_s_loop_is_refused() -> None:
    case, said = case_of("generic_variance"), []
    for config in claim(case.func, TARGET).space.sample(60, np.random.default_rng(0)):
        try:
            lower(case.func, config, TARGET)
        except ScheduleError as error:
            said.append(str(error))
    assert any("would be summed several times" in text for text in said)


def test_a_sketch_that_leaves_the_padding_unwritten_is_not_offered() -> None:
    case = case_of("generic_padded_rows")
    (sketches,) = (knob for knob in claim(case.func, TARGET).space.knobs if knob.name == "sketch")
    assert 0 < len(sketches.choices) < 3
    config = claim(case.func, TARGET).space.initial[0]
    left_out = next(number for number in range(3) if number not in sketches.choices)
    wrong = Config(config.space, tuple((name, left_out if name == "sketch" else at) for name, at in config.items))
    with pytest.raises(ScheduleError, match=f"sketch is {left_out}"):
        lower(case.func, wrong, TARGET)


def test_programs_survive_their_text_form() -> None:
    func = load_program(program_of(GENERIC[0].func))
    assert claim(func, TARGET) == claim(GENERIC[0].func, TARGET)


def test_a_function_that_is_not_worth_waking_a_thread_is_left_to_the_baseline() -> None:
    def claimed(rows: int) -> str:
        return claim(relax_case("sum", "", op.sum, [(rows, 32)], np.sum).func, TARGET).template

    assert (claimed(LEAST // 32 - 1), claimed(LEAST // 32)) == ("baseline", "generic")
