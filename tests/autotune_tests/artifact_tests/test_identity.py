"""What tells two artifacts apart beside their plans and weights: which kernels are called, and in which order."""

from dataclasses import replace

import pytest

from autotune.artifact.identity import identity
from autotune.artifact.make_plan import make_plan
from tests.autotune_tests.tiny import target, tiny_program
from tuning_logs.sql_store import memory_log


@pytest.fixture(scope="module")
def program(tiny_built):
    return tiny_program(tiny_built.model)


def test_kernels_take_part_in_the_order_of_their_calls(program):
    plan = make_plan(program.tasks, program.spaces, target(), memory_log())
    names, keys = list(program.kernels), list(program.kernels.values())
    assert keys != keys[::-1]
    turned = replace(program, kernels=dict(zip(names, keys[::-1], strict=True)))
    assert identity(turned, plan) != identity(program, plan)


def test_a_program_imported_again_has_the_same(program, tiny_built):
    plan = make_plan(program.tasks, program.spaces, target(), memory_log())
    again = tiny_program(tiny_built.model)
    assert again is not program
    assert identity(again, plan) == identity(program, plan)
