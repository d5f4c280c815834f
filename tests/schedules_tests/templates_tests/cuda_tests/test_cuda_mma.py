"""``mma.sync`` and ``ldmatrix`` in the emulator exchange registers by the formulas of the PTX ISA."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest
from tvm import tirx
from tvm.ir import Var

from autotune.host.dtypes import rounded
from schedules.templates.cuda.cuda_mma import COLUMNS, MULTIPLIES, ROWS, load, multiply
from tests.schedules_tests.templates_tests.cuda_tests.emulator import compile_emulated

LANES = np.arange(32)
GROUP, THREAD = LANES // 4, LANES % 4


def fragments(width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows and depths of A's elements, depths and columns of B's, (lanes, elements) each, by "Matrix Fragments".

    Args:
        width: bytes of an element: mma.m16n8k8 of tf32, mma.m16n8k16 of halves, or mma.m16n8k32 of bytes.
    """
    a, b = np.arange(16 // width)[None], np.arange(8 // width)[None]
    g, t = GROUP[:, None], THREAD[:, None]
    if width == 4:
        # a0, a2 of row g, a1, a3 of row g + 8; a0, a1 of column t, a2, a3 of column t + 4
        return g + 8 * (a % 2), t + 4 * (a // 2), t + 4 * b, g + 0 * b
    if width == 2:
        lower = ((a < 2) | ((a >= 4) & (a < 6))) == 0
        return g + 8 * lower, 2 * t + a % 2 + 8 * (a >= 4), 2 * t + b % 2 + 8 * (b >= 2), g + 0 * b
    lower = ((a < 4) | ((a >= 8) & (a < 12))) == 0
    return g + 8 * lower, 4 * t + a % 4 + 16 * (a >= 8), 4 * t + b % 4 + 16 * (b >= 4), g + 0 * b


def source_of(statement: tirx.Evaluate) -> str:
    """The definition of the device function that ``statement`` calls."""
    return str(statement.value.args[-1].value)


def run(library: ctypes.CDLL, *arrays: np.ndarray) -> None:
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    library.run_main_kernel(pointers, (ctypes.c_uint * 6)(1, 1, 1, 32, 1, 1))


def place(name: str, dtype: str) -> tuple[Var, int]:
    return tirx.decl_buffer((64,), dtype, name), 0


@pytest.mark.parametrize("name", MULTIPLIES)
def test_a_product_of_fragments_is_that_of_their_matrices(name: str) -> None:
    kind = MULTIPLIES[name]
    rng = np.random.default_rng(3)
    types = [np.dtype(dtype) for dtype in kind.types]
    if kind.sums == "int32":
        limits = [np.iinfo(dtype) for dtype in types]
        a, b = (
            rng.integers(limit.min, limit.max, size, limit.dtype, endpoint=True)
            for limit, size in zip(limits, ((ROWS, kind.depth), (kind.depth, COLUMNS)), strict=True)
        )
    else:
        a = rng.standard_normal((ROWS, kind.depth)).astype(types[0])
        b = rng.standard_normal((kind.depth, COLUMNS)).astype(types[1])
    c = rng.integers(-9, 9, (ROWS, COLUMNS)).astype(kind.sums)
    rows, depths_a, depths_b, columns = fragments(kind.bytes)
    given_a, given_b = (np.ascontiguousarray(x).view(np.uint32) for x in (a[rows, depths_a], b[depths_b, columns]))
    sums = np.arange(4)[None]
    at = GROUP[:, None] + 8 * (sums >= 2), 2 * THREAD[:, None] + sums % 2
    given_c = np.ascontiguousarray(c[at])
    code = source_of(multiply(kind, place("c", kind.sums), place("a", "uint32"), place("b", "uint32")))
    c_type = "int" if kind.sums == "int32" else "float"
    kernel = (
        f'extern "C" __global__ void main_kernel({c_type}* c, unsigned* a, unsigned* b) {{\n'
        f"  tune_multiply_{'_'.join(kind.ptx)}(c, threadIdx.x * 4, a, threadIdx.x * 4, b, threadIdx.x * 2);\n}}\n"
    )
    run(compile_emulated(code + kernel), given_c, given_a, given_b)
    exact = np.int64 if kind.sums == "int32" else np.float64
    # Tensor cores ignore what TF32 does not have: numbers are cut off unless they were rounded before.
    cut = [(x.view(np.uint32) & 0xFFFFE000).view(np.float32) if kind.words else x for x in (a, b)]
    want = c.astype(exact) + cut[0].astype(exact) @ cut[1].astype(exact)
    np.testing.assert_allclose(given_c, want[at], rtol=0 if exact is np.int64 else 1e-5, atol=0 if kind.words else 1e-5)


@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix_gives_every_lane_its_register_of_four_matrices(transposed: bool) -> None:
    matrices = np.arange(4 * 8 * 8, dtype=np.uint16).reshape(4, 8, 8)
    code = source_of(load(place("r", "uint32"), place("tile", "uint16"), transposed))
    kernel = (
        'extern "C" __global__ void main_kernel(unsigned* r, unsigned short* tile) {\n'
        "  __shared__ alignas(128) unsigned short shared[256];\n"
        "  for (int i = 0; i < 8; ++i) shared[threadIdx.x * 8 + i] = tile[threadIdx.x * 8 + i];\n"
        "  __syncthreads();\n"
        f"  tune_load{'_transposed' * transposed}(r, threadIdx.x * 4, shared, threadIdx.x * 8);\n}}\n"
    )
    registers = np.zeros((32, 4), np.uint32)
    run(compile_emulated(code + kernel), registers, matrices)
    seen = matrices.transpose(0, 2, 1) if transposed else matrices
    want = seen[:, GROUP[:, None], 2 * THREAD[:, None] + np.arange(2)].transpose(1, 0, 2)
    np.testing.assert_array_equal(registers.view(np.uint16).reshape(32, 4, 2), want)


def test_tf32_is_rounded_to_11_bits_halves_away_from_zero() -> None:
    ulp = np.float32(2.0**-10)
    values = np.array([1 + ulp / 2, -1 - ulp / 2, 1 + ulp / 2.01, 1.5 * ulp, np.inf, -np.inf, np.nan], np.float32)
    want = np.array([1 + ulp, -1 - ulp, 1, 1.5 * ulp, np.inf, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(rounded(values, "tf32"), want)
    assert rounded(values[:4], "bfloat16").dtype == np.float32
    assert float(ml_dtypes.finfo("bfloat16").eps) > float(ulp)
