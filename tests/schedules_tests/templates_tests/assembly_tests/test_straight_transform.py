"""Transforms of tiles: matrix · tile · matrixᵀ for every matrix of Winograd's, and for others."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from schedules.templates.assembly.assembly_text import AssemblyText
from schedules.templates.assembly.straight_transform import StraightTransform, kept
from schedules.templates.assembly.vectors import AVX512
from schedules.templates.common.winograd_transforms import AT, BT, Matrix
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    assembled,
    function_of,
    linked,
    runs_here,
)

SCRATCH = 128
"""Bytes of the stack that a transform leaves alone."""

MATRICES: dict[str, Matrix] = {
    **{f"BT{m}": matrix for m, matrix in BT.items()},
    **{f"AT{m}": matrix for m, matrix in AT.items()},
    "one": ((1.0,),),
    "of single numbers": ((0, 1), (3, 0)),
    "multiplied and added": ((1, 2, 0), (2, -1, 1), (5, 2, -5)),
    "a number alone on the stack": ((1, 0, 0, 0, 0, 0),) * 3 + ((0, 0, 0, 0, 0, 1),) * 3,
}


def text_of(matrix: Matrix) -> str:
    """void transform(tile, result, guard): a tile of vectors, its result, and what it leaves of the stack below."""
    code, outputs, inputs = AssemblyText("transform"), len(matrix), len(matrix[0])
    transform = StraightTransform(code, matrix, SCRATCH)
    room = SCRATCH + StraightTransform.scratch_bytes(matrix)
    code.emit("push rbp", "mov rbp, rsp", "and rsp, -64", f"sub rsp, {room + 64}")
    code.emit(*(f"mov dword ptr [rsp+{at}], 77" for at in (*range(0, SCRATCH, 4), *range(room, room + 64, 4))))
    transform.begin()
    transform.tile(
        lambda x, y: f"[rdi+{64 * (x * inputs + y)}]",
        lambda x, y, register: code.emit(f"vmovups [rsi+{64 * (x * outputs + y)}], zmm{register}"),
    )
    for at in range(0, SCRATCH + 64, 64):
        code.emit(f"vmovups zmm0, [rsp+{at if at < SCRATCH else room}]", f"vmovups [rdx+{at}], zmm0")
    code.emit("leave", "vzeroupper", "ret")
    return function_of("transform", code)


@runs_here
@pytest.mark.parametrize("name", MATRICES)
def test_it_is_the_product_of_matrices(name: str, tmp_path: Path) -> None:
    matrix = MATRICES[name]
    tile = np.random.default_rng(0).standard_normal((len(matrix[0]), len(matrix[0]), 16)).astype(np.float32)
    result = np.full((len(matrix), len(matrix), 16), np.nan, np.float32)
    guard = np.zeros((SCRATCH + 64) // 4, np.int32)
    library = ctypes.CDLL(str(linked([assembled(text_of(matrix), tmp_path / "t.o")], tmp_path / "t.so")))
    library.transform(*[ctypes.c_void_p(array.ctypes.data) for array in (tile, result, guard)])
    side = np.asarray(matrix, np.float64)
    right = np.einsum("px,xyi,qy->pqi", side, tile.astype(np.float64), side)
    np.testing.assert_allclose(result, right, rtol=1e-5, atol=2e-6 * np.abs(right).max())
    assert (guard == 77).all(), "something is written beside the transform's own part of the stack"


def test_scratch_is_what_the_registers_do_not_hold() -> None:
    assert {name: StraightTransform.scratch_bytes(matrix) for name, matrix in MATRICES.items() if "T" in name} == {
        "BT2": 0,
        "BT4": (36 - len(kept(AVX512))) * 64,
        "AT2": 0,
        "AT4": (24 - len(kept(AVX512))) * 64,
    }


def test_multiplications_by_one_and_by_zero_are_none() -> None:
    text = text_of(BT[2])
    assert "mulps" not in text
    assert "fmadd" not in text
    assert text_of(AT[4]).count("vbroadcastss") == 3  # 2, 4 and 8
