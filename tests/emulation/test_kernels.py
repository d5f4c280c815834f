"""Templates and dot products for other processors: built here, run by QEMU, and right as NumPy says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import s_tir, te

from schedules.config import Config
from schedules.lower import claim, lower, repack
from schedules.target import Target
from schedules.templates.instructions import dots
from schedules.templates.instructions.dots import BF16, S8S8, U8S8, DotForm
from schedules.vocabulary.errors import ScheduleError
from tests.emulation.kernels import Kernel, needs, run_emulated
from tests.emulation.narrow_cases import all_cases
from tests.schedules_tests.programs import Case, from_te, inputs

FEW, MANY = 2, 20
"""Random configs of every template: of each run of the suite, and of the slow tests."""

TARGETS = {
    "neoverse-n2": Target.cpu("neoverse-n2", 1),
    "neoverse-n1": Target.cpu("neoverse-n1", 1),
    "rv64": Target("llvm", "rv64"),
    "rvv128": Target("llvm", "rvv128"),
    "rvv256": Target("llvm", "rvv256"),
    "rvv512": Target("llvm", "rvv512"),
}


def emulated(*names: str, slow: bool = False) -> pytest.MarkDecorator:
    """Targets to run a test for; skipped where they cannot be emulated."""
    marks = [pytest.mark.slow] if slow else []
    parameters = [
        pytest.param(TARGETS[name], id=name, marks=[*marks, needs(TARGETS[name].architecture)]) for name in names
    ]
    return pytest.mark.parametrize("target", parameters)


def random_configs(target: Target, count: int) -> Iterator[tuple[Case, Config, Kernel]]:
    """``count`` random configs that apply, of every template, its cases in turn."""
    rng = np.random.default_rng(0)
    by_template: dict[str, list[Case]] = {}
    for case in all_cases(target):
        by_template.setdefault(case.template, []).append(case)
    for cases in by_template.values():
        count_found = 0
        for turn in range(5 * count):
            case = cases[turn % len(cases)]
            config = claim(case.func, target).space.sample(1, rng)[0]
            try:
                func = lower(case.func, config, target).mod["main"]
            except ScheduleError:
                continue
            arrays = inputs(case.func)
            changed = {index: how.apply(arrays[index]) for index, how in repack(case.func, config).items()}
            yield case, config, Kernel(func, [changed.get(index, array) for index, array in enumerate(arrays)])
            count_found += 1
            if count_found == count:
                break
        assert count_found == count, f"too few configs of {cases[0].template} apply"


def check_random_configs(target: Target, count: int) -> None:
    cases, configs, kernels = zip(*random_configs(target, count), strict=True)
    for case, config, output in zip(cases, configs, run_emulated(kernels, target), strict=True):
        expected, rtol = case.expected(*inputs(case.func)), 2e-4 if output.dtype.kind == "f" else 0.0
        if output.dtype == "bfloat16":  # which neighbour a sum is rounded to depends on its order
            output, expected, rtol = output.astype(np.float32), expected.astype(np.float32), 2.0**-7
        said = f"{case.name} {config.to_json()}"
        # Axes that are read alike are joined when a kernel is lowered: its arrays are the same bytes.
        output = output.reshape(expected.shape)
        np.testing.assert_allclose(output, expected, rtol=rtol, atol=rtol / 10, err_msg=said)


@emulated("neoverse-n2", "rvv256")
def test_random_configs_of_every_template_are_right(target: Target) -> None:
    check_random_configs(target, FEW)


@emulated("neoverse-n2", "neoverse-n1", "rv64", "rvv128", "rvv256", "rvv512", slow=True)
def test_many_random_configs_of_every_template_are_right(target: Target) -> None:
    check_random_configs(target, MANY)


def numbers(form: DotForm, lanes: int) -> list[NDArray[Any]]:
    """Three steps of numbers and weights, extremes among them: 255 · -128 four times is what wraps in 16 bits."""
    rng = np.random.default_rng(0)
    if form is BF16:
        return [rng.uniform(-1, 1, size).astype("bfloat16") for size in ((3, 2), (3, lanes, 2))]
    some = [0, 1, 127, 128, 255] if form is U8S8 else [-128, -127, -1, 0, 1, 127]
    x = rng.choice(np.array(some, form.data), (3, 4))
    w = rng.choice(np.array([-128, -127, -1, 0, 1, 127], np.int8), (3, lanes, 4))
    x[0], w[0, 0], w[0, 1] = (255 if form is U8S8 else -128), -128, 127
    return [x, w]


@pytest.mark.parametrize("form", [U8S8, S8S8, BF16], ids=lambda form: form.name)
@emulated("neoverse-n2", "neoverse-n1", "rvv128")
def test_a_dot_product_is_exact(target: Target, form: DotForm) -> None:
    x, w = numbers(form, target.lanes())
    a, b = te.placeholder(x.shape, form.data, name="x"), te.placeholder(w.shape, form.weight, name="w")
    k, q = te.reduce_axis((0, 3), "k"), te.reduce_axis((0, form.depth), "q")
    shape = (target.lanes(),)
    out = te.compute(shape, lambda i: te.sum(dots.multiplied(a[k, q], b[k, i, q], form), axis=[k, q]), name="out")
    sch = s_tir.Schedule(from_te(a, b, out))
    i, outer, inner = sch.get_loops(sch.get_sblock("out"))
    sch.reorder(outer, i, inner)
    sch.decompose_reduction(sch.get_sblock("out"), outer)
    dots.use_dot(sch, i, form, target)
    output = run_emulated([Kernel(sch.mod["main"], [x, w])], target)[0]
    wide, rtol = (np.float64, 1e-6) if form is BF16 else (np.int64, 0.0)
    np.testing.assert_allclose(output, np.einsum("kq,kbq->b", x.astype(wide), w.astype(wide)), rtol=rtol)
