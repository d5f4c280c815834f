"""A model placed on CPU and GPU: every kernel is built for the device of its lane, and together they are right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray

pytest.importorskip("cuda.bindings", reason="needs NVRTC: pip install 'tune-compiler[cuda]'")

from autotune.importer.load import load_model
from autotune.importer.program import import_program
from autotune.importer.simplify import simplify
from schedules.target import Target
from tests.bench.gpu.two_lanes import Plan, make_plan, wrong_kernels
from tests.cuda_tests.test_emulated_models import Kernel, check
from tests.models.catalog import cached

MODEL = "tiny_wide_deep"


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return make_plan(cached(MODEL), "sm_90", tmp_path_factory.mktemp("lanes"), 0.0, 0.0)


def cpu_lane(plan: Plan) -> str:
    return next(lane for lane in plan.kernels if lane.startswith("cpu"))


def test_every_kernel_is_built_for_its_lane(plan):
    assert all(plan.kernels.values())
    assert set(plan.lanes.values()) == set(plan.kernels)
    assert wrong_kernels(plan, "sm_90") == []


def test_kernels_of_the_wrong_device_are_told(plan):
    cpu, (gpu_kernel, *_) = cpu_lane(plan), plan.kernels["cuda:0"]
    assert "has no code for sm_80" in wrong_kernels(plan, "sm_80")[0]
    swapped = replace(plan, libraries={cpu: plan.libraries["cuda:0"], "cuda:0": plan.libraries[cpu]})
    assert any(f"{gpu_kernel} belongs on cuda:0 and has no code" in line for line in wrong_kernels(swapped, "sm_90"))
    moved = replace(plan, kernels={cpu: (gpu_kernel,), "cuda:0": plan.kernels["cuda:0"][1:]})
    assert any(line.endswith("is not of cuda:0") for line in wrong_kernels(moved, "sm_90"))


@pytest.mark.slow
def test_together_they_compute_the_model(plan):
    """The CPU's kernels run, the GPU's run from their source on the CPU, and hand over to each other."""
    library = tvm.runtime.load_module(str(plan.libraries[cpu_lane(plan)]))

    def native(symbol: str) -> Kernel:
        def run(arguments: list[NDArray[Any]], output: NDArray[Any]) -> NDArray[Any]:
            tensors = [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in (*arguments, output)]
            library[symbol](*tensors)
            return tensors[-1].numpy()

        return run

    model = load_model(cached(MODEL), {})
    program = import_program(simplify(model), Target.cuda("sm_90"))
    check(model, program, 1e-3, 1e-4, {symbol: native(symbol) for symbol in plan.kernels[cpu_lane(plan)]})
