"""Tensor-core steps as TVM wants them: what each computes (``description``) and the instruction that does it.

One step works on 16×16×16 tiles: fragments are loaded from shared memory, multiplied with float32 accumulation, and
stored. TVM has these too, but importing them registers every intrinsic of every backend, which takes 9 s.
"""

from __future__ import annotations

from functools import cache

import tvm
from tvm import tirx
from tvm.script import from_source

TILE = 16
SHARED = "shared.dyn"
RESULT = "shared"
"""Where accumulators are stored. Not with the operands' tiles, though these are dead by then: TVM would put the float32
results into memory that it had declared as float16, and then refuse the pointer to them."""

BUFFER = '{name} = T.match_buffer({handle}, (16, 16), "{dtype}", align=64, offset_factor=16, scope="{scope}"{strides})'

FUNCTION = """
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def main({handles}):
{lines}
"""


@cache
def intrinsics(dtype: str) -> dict[str, str]:
    """Registers the steps for operands of ``dtype``, once; step → the name to tensorize with.

    Steps: ``load_a``, ``load_b`` (shared memory → fragment), ``fill`` (zeros), ``sync`` (multiply and add), ``store``
    (accumulator → shared memory).
    """
    names = {}
    for step in ("load_a", "load_b", "fill", "sync", "store"):
        name = f"tune_wmma_{step}_{dtype}"
        description, implementation = _step(step, dtype)
        tirx_register(name, description, implementation)
        names[step] = name
    return names


def tirx_register(name: str, description: tirx.PrimFunc, implementation: tirx.PrimFunc) -> None:
    """Register one tensor intrinsic; a name that is taken holds the same."""
    tvm.s_tir.TensorIntrin.register(name, description, implementation, override=True)


def _step(step: str, dtype: str) -> tuple[tirx.PrimFunc, tirx.PrimFunc]:
    operands = {
        "load_a": [("A", dtype, SHARED), ("C", dtype, "wmma.matrix_a")],
        "load_b": [("A", dtype, SHARED), ("C", dtype, "wmma.matrix_b")],
        "fill": [("C", "float32", "wmma.accumulator")],
        "sync": [("A", dtype, "wmma.matrix_a"), ("B", dtype, "wmma.matrix_b"), ("C", "float32", "wmma.accumulator")],
        "store": [("A", "float32", "wmma.accumulator"), ("C", "float32", RESULT)],
    }[step]
    reads = [f"{name}[0:16, 0:16]" for name, _, _ in operands[:-1]]
    if step == "sync":
        reads.insert(0, "C[0:16, 0:16]")
    frame = ['with T.sblock("root"):', f"    T.reads({', '.join(reads)})", "    T.writes(C[0:16, 0:16])"]
    described = [*frame, *(f"    {line}" for line in _loops(step))]
    done = [*frame, f"    T.evaluate({_instruction(step, dtype)})"]
    return _function(operands, described, False), _function(operands, done, True)


def _function(operands: list[tuple[str, str, str]], body: list[str], strided: bool) -> tirx.PrimFunc:
    lines = []
    for name, dtype, scope in operands:
        letter = name.lower()
        if strided:
            lines += [f"{letter}1 = T.int32()", f"{letter}0 = T.int32()"]
        strides = f", strides=[{letter}1, {letter}0]" if strided else ""
        lines.append(BUFFER.format(name=name, handle=letter, dtype=dtype, scope=scope, strides=strides))
    handles = ", ".join(f"{name.lower()}: T.handle" for name, _, _ in operands)
    return from_source(FUNCTION.format(handles=handles, lines="\n".join(f"    {line}" for line in [*lines, *body])))


def _loops(step: str) -> list[str]:
    if step == "sync":
        return [
            "for i, j, k in T.grid(16, 16, 16):",
            '    with T.sblock(""):',
            '        vi, vj, vk = T.axis.remap("SSR", [i, j, k])',
            '        C[vi, vj] = C[vi, vj] + T.Cast("float32", A[vi, vk]) * T.Cast("float32", B[vk, vj])',
        ]
    value = "T.float32(0)" if step == "fill" else "A[vi, vj]"
    return [
        "for i, j in T.grid(16, 16):",
        '    with T.sblock("copy"):',
        '        vi, vj = T.axis.remap("SS", [i, j])',
        f"        C[vi, vj] = {value}",
    ]


def _instruction(step: str, dtype: str) -> str:
    a, b, c = (
        f"{x.upper()}.elem_offset // {x}1 // 16 * ({x}1 // 16) + {x.upper()}.elem_offset % {x}1 // 16" for x in "abc"
    )
    if step.startswith("load"):
        pointer = f'A.access_ptr("r", ptr_type="{dtype}")'
        return f'T.tvm_load_matrix_sync(C.data, 16, 16, 16, {c}, {pointer}, a1, "row_major", dtype="void")'
    if step == "fill":
        return f'T.tvm_fill_fragment(C.data, 16, 16, 16, {c}, T.float32(0), dtype="void")'
    if step == "sync":
        return f'T.tvm_mma_sync(C.data, {c}, A.data, {a}, B.data, {b}, C.data, {c}, dtype="void")'
    pointer = 'C.access_ptr("w", ptr_type="float32")'
    return f'T.tvm_store_matrix_sync(A.data, 16, 16, 16, {a}, {pointer}, c1, "row_major", dtype="void")'
