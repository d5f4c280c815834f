"""Kernels for tensor cores: results and bank conflicts of small ones, and the machine code of large ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.backends.cuda.cubin import inspect
from autotune.backends.cuda.nvrtc import compile_cuda
from autotune.backends.cuda.source import CudaProgram, cuda_program
from research.gpu.opcodes import opcodes, tensor_share
from schedules.lower import claim, lower
from schedules.target import Target
from schedules.templates.cuda.cuda_tensor_parts import PermutedTile
from tests.schedules_tests.programs import Case
from tests.schedules_tests.templates_tests.cuda_tests import emulator
from tests.schedules_tests.templates_tests.cuda_tests.cases import TENSOR, half_dense, half_product
from tests.schedules_tests.templates_tests.cuda_tests.tensor_checks import check_tensor

TARGET = Target.cuda("sm_90")
QUICK = ("float16_scores", "bfloat16_conv_3x3", "tf32_conv_3x3", "uint8_int8_dense")
SHARES = {"float16": 0.35, "bfloat16": 0.35, "tf32": 0.14, "uint8*int8": 0.35}
"""Kind → least share of tensor cores' instructions in the loop. Rounding to TF32 takes two instructions a number."""


@pytest.mark.parametrize("name", QUICK)
def test_the_first_guess_is_right_and_meets_no_bank_twice(name: str) -> None:
    case = next(case for case in TENSOR if case.name == name)
    check_tensor(case, claim(case.func, TARGET).space.initial[0], TARGET)


@pytest.mark.parametrize("case", [case for case in TENSOR if "dense_deep" in case.name], ids=lambda case: case.name)
def test_parts_of_a_shared_depth_are_added_up(case: Case) -> None:
    space = claim(case.func, TARGET).space
    config = next(space.config(row) for row in space.rows if space.config(row).integer("split") > 1)
    check_tensor(case, config, TARGET)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("kind", SHARES)
def test_the_first_guess_spills_nothing_and_multiplies_most(kind: str, arch: str) -> None:
    target = Target.cuda(arch)
    func = half_dense("large", 1024, 2048, 1024, kind).func
    config = claim(func, target).space.initial[0]
    cubin = compile_cuda(cuda_program(lower(func, config, target), target).source, arch)
    assert {kernel.local_bytes for kernel in inspect(cubin).values()} == {0}
    shares = [tensor_share(codes) for codes in opcodes(cubin).values()]
    assert max(shares) >= SHARES[kind]


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("width", [32, 64, 128, 256, 512])
def test_a_permuted_tile_keeps_every_element(size: int, width: int) -> None:
    for single in (False, True):
        tile = PermutedTile(16, width // size, size, single)
        places = {int(tile.at(row, column)) for row in range(tile.rows) for column in range(tile.width)}
        assert places == set(range(tile.elements))


@pytest.mark.parametrize("missing", ["tune_wait_1();", "__syncthreads();"])
def test_a_missing_wait_or_barrier_is_found(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in TENSOR if case.name == "float16_conv_3x3")
    space = claim(case.func, TARGET).space
    config = next(
        space.config(row)
        for row in space.rows
        if (space.config(row).integer("stages"), space.config(row).integer("wm"), space.config(row).integer("tk"))
        == (3, 2, 16)
    )
    check_tensor(case, config, TARGET)
    real = emulator.cuda_program
    monkeypatch.setattr(emulator, "cuda_program", lambda *arguments: _without(real(*arguments), missing))
    with pytest.raises(AssertionError, match="Not equal"):
        check_tensor(case, config, TARGET)


def _without(program: CudaProgram, text: str) -> CudaProgram:
    assert text in program.source
    return replace(program, source=program.source.replace(text, ""))


def test_few_outputs_are_left_to_others() -> None:
    case = half_product("row", "bmk,bkn->bmn", (1, 1, 64), (1, 64, 16))
    assert claim(case.func, TARGET).template != "cuda_tensor"
