"""Every dot product by itself against NumPy, where this processor has it, and which one a target gets."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import s_tir, te, tirx

from autotune.host.machine import host_target
from schedules.lower import tvm_target
from schedules.target import Target
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions import dots
from schedules.templates.instructions.dots import BF16, CATALOG, S8S8, TAPS, U8S8, Dot, DotForm, best_dot, byte_form
from schedules.templates.instructions.llvm_target import features_of
from tests.schedules_tests.programs import from_te

HERE = features_of(host_target(1))
STEPS = 3


def name_of(dot: Dot) -> str:
    return "-".join([dot.form.name, dot.name, *sorted(dot.features)])


def widths(dot: Dot) -> list[int]:
    return [dot.lanes] if dot.lanes else [4, 8, 16]


def test_forms_fill_four_bytes() -> None:
    for form in (U8S8, TAPS, S8S8, BF16):
        assert form.depth * np.dtype(form.weight).itemsize == 4


@pytest.mark.parametrize(
    ("dot", "lanes"),
    [
        pytest.param(dot, lanes, id=f"{name_of(dot)}-{lanes}")
        for dot in CATALOG
        if not dot.form.bits and dot.form.rows == 1
        for lanes in widths(dot)
    ],
)
def test_a_dot_product_is_exact(dot: Dot, lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Extremes among the numbers: 255 · -128 four times is what saturating instructions get wrong."""
    if not dot.features <= HERE:
        pytest.skip(f"this processor lacks {', '.join(sorted(dot.features - HERE))}")
    form = dot.form
    monkeypatch.setattr(dots, "best_dot", lambda *_: dot)
    target = Target(kind="llvm", isa="generic", features=tuple(f"+{feature}" for feature in sorted(dot.features)))
    rng = np.random.default_rng(0)
    exact, own = form.sum == "int32", (lanes,) if form.turned else ()
    if not exact:
        x, w = (rng.uniform(-1, 1, size).astype("bfloat16") for size in ((STEPS, 2), (STEPS, lanes, 2)))
    else:
        some = [0, 1, 127, 128, 255] if form.data == "uint8" else [-128, -127, -1, 0, 1, 127]
        x = rng.choice(np.array(some, form.data), (STEPS, form.depth, *own))
        w = rng.choice(np.array([-128, -127, -1, 0, 1, 127], np.int8), (STEPS, lanes, form.depth))
        x[0], w[0, 0], w[0, 1] = max(some, key=abs), -128, 127
    result, text = run_dot(form, x, w, target)
    wide = np.int64 if exact else np.float64
    expected = np.einsum("kqb,kbq->b" if form.turned else "kq,kbq->b", x.astype(wide), w.astype(wide))
    np.testing.assert_allclose(result, expected, rtol=0 if exact else 1e-6, atol=0 if exact else 1e-6)
    assert not re.search(r"call\S*\s+\S*tune_dot", text), "the definition is not inlined"
    assert dot.name == "portable" or dot.name in text


def run_dot(
    form: DotForm, x: NDArray[np.generic], w: NDArray[np.generic], target: Target
) -> tuple[NDArray[np.generic], str]:
    """The sums, and the assembly."""
    steps, lanes, depth = w.shape
    a, b = te.placeholder(x.shape, form.data, name="x"), te.placeholder(w.shape, form.weight, name="w")
    k, q = te.reduce_axis((0, steps), "k"), te.reduce_axis((0, depth), "q")

    def own(lane: tirx.Var) -> tuple[tirx.Var, ...]:
        return (lane,) if form.turned else ()

    out = te.compute(
        (lanes,), lambda i: te.sum(dots.multiplied(a[(k, q, *own(i))], b[k, i, q], form), axis=[k, q]), name="out"
    )
    sch = s_tir.Schedule(from_te(a, b, out))
    block = sch.get_sblock("out")
    i, k_loop, q_loop = sch.get_loops(block)
    sch.reorder(k_loop, i, q_loop)
    sch.decompose_reduction(block, k_loop)
    dots.use_dot(sch, i, form, target)
    module = compiled(sch.mod["main"], "main", tvm_target(target))
    result = tvm.runtime.tensor(np.zeros(lanes, form.sum))
    module(tvm.runtime.tensor(x), tvm.runtime.tensor(w), result)
    return result.numpy(), str(module.mod.inspect_source("asm"))


@pytest.mark.parametrize(
    ("mcpu", "lanes", "u8s8", "bf16"),
    [
        ("znver4", 16, "vpdpbusd", "vdpbf16ps"),
        ("sapphirerapids", 16, "vpdpbusd", "vdpbf16ps"),
        ("cascadelake", 16, "vpdpbusd", "portable"),
        ("skylake-avx512", 16, "vpmaddwd", "portable"),
        ("alderlake", 8, "vpdpbusd", "portable"),
        ("haswell", 8, "vpmaddwd", "portable"),
        ("", 16, "portable", "portable"),
    ],
)
def test_a_target_gets_the_best_it_has(mcpu: str, lanes: int, u8s8: str, bf16: str) -> None:
    features = features_of(Target(kind="llvm", isa="avx512" if lanes == 16 else "avx2", mcpu=mcpu))
    assert [best_dot(form, lanes, features).name for form in (U8S8, TAPS, BF16)] == [u8s8, u8s8, bf16]


@pytest.mark.parametrize(
    ("name", "form", "instruction"),
    [
        ("neoverse-n1", S8S8, "sdot"),
        ("neoverse-n2", U8S8, "usdot"),
        ("cortex-a72", U8S8, "portable"),
        ("znver4", U8S8, "vpdpbusd"),
        ("haswell", U8S8, "vpmaddwd"),
        ("spacemit-x60", U8S8, "portable"),
    ],
)
def test_bytes_are_of_the_sign_that_instructions_multiply(name: str, form: DotForm, instruction: str) -> None:
    target = Target.cpu(name, 1)
    assert byte_form(target) is form
    assert best_dot(form, target.lanes(), features_of(target)).name == instruction


def test_vectors_are_rounded_to_bfloat16_by_the_instruction() -> None:
    """TVM's expansion of the cast is recognised; a processor without the instruction keeps it."""
    x = te.placeholder((32,), "float32", name="x")
    y = te.compute((32,), lambda i: x[i].astype("bfloat16"), name="y")
    sch = s_tir.Schedule(from_te(x, y))
    _, lane = sch.split(sch.get_loops(sch.get_sblock("y"))[0], [None, 16])
    sch.vectorize(lane)
    texts = {}
    for mcpu in ("znver4", "skylake-avx512"):
        target = Target(kind="llvm", isa="avx512", mcpu=mcpu)
        texts[mcpu] = str(compiled(sch.mod["main"], "main", tvm_target(target)).mod.inspect_source("asm"))
    assert ["vcvtneps2bf16" in text for text in texts.values()] == [True, False]
    assert not any("truncsfbf2" in text for text in texts.values())
