"""Kernels of an artifact: which are meant, and in which forms they are shown."""

import pytest

from autotune.artifact.directory import read_artifact
from autotune.report.inspect_kernels import find_task, report_kernels, report_memory
from schedules.task import Task
from schedules.vocabulary.errors import UsageError


def task(key, name):
    return Task(key, name, "toy", "toy", ((1,), (1,)), ("float32", "float32"), (), 8, 8, 1)


TASKS = (task("aa11", "fused_conv"), task("aa22", "fused_pool"), task("bb33", "fused_gemm"))


@pytest.mark.parametrize(("wanted", "key"), [("aa1", "aa11"), ("bb33", "bb33"), ("fused_pool", "aa22")])
def test_a_task_is_found_by_key_its_beginning_or_name(wanted, key):
    assert find_task(TASKS, wanted).key == key


def test_a_beginning_of_several_keys_lists_them():
    with pytest.raises(UsageError, match="aa11, aa22; give more"):
        find_task(TASKS, "aa")


def test_an_unknown_task_names_a_similar_one():
    with pytest.raises(UsageError, match="did you mean 'fused_conv'"):
        find_task(TASKS, "fused_cnov")


def test_configs_and_code_are_those_of_the_artifact(tiny_built):
    kernels = report_kernels(tiny_built.artifact)
    assert all(kernel.code == "" for kernel in kernels)
    (one,) = report_kernels(tiny_built.artifact, kernels[0].task.key, "asm")
    assert (one.task, one.config) == (kernels[0].task, kernels[0].config)
    assert "ret" in one.code
    assert one.to_data()["code"] == one.code


def test_memory_is_that_of_weights_and_arena(tiny_built):
    memory = report_memory(tiny_built.artifact)
    weights = sum(array.nbytes for array in read_artifact(tiny_built.artifact).weights)
    assert weights <= memory["weights_bytes"] < weights + 64 * 100
    assert memory["arena_bytes"] > 0


def test_a_form_of_another_kind_of_target_is_refused(tiny_built):
    with pytest.raises(UsageError, match="give tir or llvm or asm or loop"):
        report_kernels(tiny_built.artifact, emit="cuda")
