"""Every config of every template lowers or says that it cannot, and computes what NumPy computes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm_ffi

from schedules.config import Config
from schedules.lower import BASELINE, claim, lower
from schedules.target import Target
from schedules.templates.cpu.cpu_templates import CPU_TEMPLATES
from schedules.vocabulary.errors import ScheduleError
from tests.schedules_tests.cases import CASES
from tests.schedules_tests.programs import Case, inputs, run

# LLVM cuts vectors to what the CPU has, so these run anywhere: the widths are the templates' business.
WIDE = Target(kind="llvm", isa="avx512", threads=2)
NARROW = Target(kind="llvm", isa="avx2", threads=1)

sampled = pytest.mark.parametrize("count", [2, pytest.param(20, marks=pytest.mark.slow)])
"""A change tries two random configs of a kernel, a slow run twenty."""

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def check_config(case: Case, config: Config, target: Target) -> bool:
    """Whether ``config`` could be built; if so, its numbers are right."""
    arrays = inputs(case.func)
    try:
        result = run(case.func, config, target, arrays)
    except ScheduleError:
        return False
    expected = case.expected(*arrays)
    if result.dtype == "bfloat16":  # which neighbour a sum is rounded to depends on its order
        result, expected, rtol = result.astype(np.float32), expected.astype(np.float32), 2.0**-7
    else:
        rtol = 2e-4 if result.dtype.kind == "f" else 0.0
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=rtol / 10, err_msg=config.to_json())
    return True


@every_case
def test_the_right_template_claims_it(case: Case) -> None:
    assert claim(case.func, WIDE).template == case.template
    assert claim(case.func, NARROW).template == case.template


@every_case
def test_the_untuned_program_is_right(case: Case) -> None:
    assert check_config(case, BASELINE, WIDE)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [4, 16, 64])
@every_case
def test_guesses_for_more_threads_than_this_machine_has_are_right(case: Case, threads: int) -> None:
    target = replace(WIDE, threads=threads)
    assert check_config(case, claim(case.func, target).space.initial[0], target)


@every_case
def test_the_best_guess_builds_and_is_right(case: Case) -> None:
    for target in (WIDE, NARROW):
        space = claim(case.func, target).space
        assert space.initial
        assert all(space.contains(config) for config in space.initial)
        assert check_config(case, space.initial[0], target)


@sampled
@every_case
def test_sampled_configs_are_right_or_refused(case: Case, count: int) -> None:
    space = claim(case.func, WIDE).space
    configs = space.sample(count, np.random.default_rng(len(case.name)))
    built = [check_config(case, config, WIDE) for config in configs]
    assert sum(built) * 2 >= len(built), "most of a space must be legal"


@every_case
def test_lowering_twice_gives_the_same_program(case: Case) -> None:
    for config in claim(case.func, WIDE).space.sample(2, np.random.default_rng(7)):
        first, second = (lower(case.func, config, WIDE).mod for _ in range(2))
        assert tvm_ffi.structural_equal(first, second)


@pytest.mark.parametrize("template", CPU_TEMPLATES.templates, ids=lambda template: template.name)
def test_every_template_has_cases_of_its_own(template: object) -> None:
    assert sum(case.template == template.name for case in CASES) >= 3  # type: ignore[attr-defined]


def test_case_names_differ() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
