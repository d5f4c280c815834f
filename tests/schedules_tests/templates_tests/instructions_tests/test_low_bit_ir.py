"""Dot products of packed weights, each by itself against NumPy, where this processor has it."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

from autotune.host.machine import host_target
from schedules.lower import tvm_target
from schedules.target import Target
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions import dots
from schedules.templates.instructions.dots import CATALOG, Dot, best_dot
from schedules.templates.instructions.llvm_target import features_of
from tests.schedules_tests.programs import from_te

HERE = features_of(host_target(1))
STEPS = 3
OURS = [dot for dot in CATALOG if dot.form.bits]


def name_of(dot: Dot) -> str:
    return "-".join([dot.form.name, dot.name, *sorted(dot.features)])


@pytest.mark.parametrize("dot", OURS, ids=name_of)
def test_a_dot_product_is_exact(dot: Dot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Extremes among the numbers: 255 · -128 four times is what saturating instructions get wrong."""
    if not dot.features <= HERE:
        pytest.skip(f"this processor lacks {', '.join(sorted(dot.features - HERE))}")
    form, lanes = dot.form, dot.lanes or 8
    monkeypatch.setattr(dots, "best_dot", lambda *_: dot)
    target = Target(kind="llvm", isa="generic", features=tuple(f"+{feature}" for feature in sorted(dot.features)))
    rng = np.random.default_rng(0)
    w = rng.choice(np.array([0, 1, 15, 240, 127, 128, 255], np.uint8), (STEPS, lanes, 4))
    if form.data == "int8":
        x = rng.choice(np.array([-128, -127, -1, 0, 1, 127], np.int8), (STEPS, form.depth))
        x[0], w[0, 0] = -128, 255
    else:
        x = rng.uniform(-1, 1, (STEPS, form.depth)).astype(np.float32)
    levels = np.concatenate([w & 15, w >> 4], -1) if form.bits == 4 else w
    expected = np.einsum("kq,kbq->b", x.astype(np.float64), levels.astype(np.float64))
    tolerance = 0 if form.data == "int8" else 1e-4
    np.testing.assert_allclose(summed(dot, x, w, target), expected, rtol=0, atol=tolerance)


def summed(dot: Dot, x: np.ndarray, w: np.ndarray, target: Target) -> np.ndarray:
    """The sums of ``STEPS`` dot products."""
    form = dot.form
    a, b = te.placeholder(x.shape, form.data, name="x"), te.placeholder(w.shape, "uint8", name="w")
    k, q = te.reduce_axis((0, len(w)), "k"), te.reduce_axis((0, 4), "q")
    halves = [te.reduce_axis((0, 2), "h")] if form.bits == 4 else []

    def number(i: tirx.Var) -> tirx.Expr:
        byte, place = b[k, i, q], q
        if halves:
            byte = tirx.Select(halves[0] == 0, byte & tirx.const(15, "uint8"), byte >> tirx.const(4, "uint8"))
            place = halves[0] * 4 + q
        left = a[k, place] if form.data == form.sum else a[k, place].astype(form.sum)
        return te.sum(left * byte.astype(form.sum), axis=[k, *halves, q])

    out = te.compute((w.shape[1],), number, name="out")
    sch = s_tir.Schedule(from_te(a, b, out))
    block = sch.get_sblock("out")
    i, k_loop, *rest = sch.get_loops(block)
    sch.reorder(k_loop, i, *rest)
    sch.decompose_reduction(block, k_loop)
    dots.use_dot(sch, i, form, target)
    module = compiled(sch.mod["main"], "main", tvm_target(target))
    result = tvm.runtime.tensor(np.zeros(w.shape[1], form.sum))
    module(tvm.runtime.tensor(x), tvm.runtime.tensor(w), result)
    return result.numpy()


@pytest.mark.parametrize(
    ("mcpu", "lanes", "int8", "floats"),
    [
        ("znver4", 16, "vpdpbusd", "vpermps"),
        ("skylake-avx512", 16, "vpmaddwd", "vpermps"),
        ("haswell", 8, "vpmaddwd", "portable"),
    ],
)
def test_the_best_of_a_processor_is_taken(mcpu: str, lanes: int, int8: str, floats: str) -> None:
    features = features_of(Target("llvm", isa="generic", mcpu=mcpu))
    by_form = {form.name: best_dot(form, lanes, features).name for form in dots.LOW_BITS}
    assert by_form == {"s8u4": int8, "s8u8": int8, "f32u4": floats, "f32u8": "portable"}
