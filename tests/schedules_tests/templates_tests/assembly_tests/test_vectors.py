"""Kernels in AVX2: the same as in AVX-512, with other registers; and how either is spelt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from schedules.config import Config
from schedules.lower import assembly, claim
from schedules.target import Target
from schedules.templates.amx.amx_product import ALGORITHM
from schedules.templates.assembly.vectors import AVX2, AVX512, OutOfScope, vectors_of
from schedules.templates.common.movements import concat
from schedules.templates.instructions.dots import U8S8
from tests.schedules_tests.programs import dot_conv_case, dot_matmul_case, dtypes, from_te, inputs, run, shapes
from tests.schedules_tests.templates_tests.assembly_tests import test_picture_text as direct
from tests.schedules_tests.templates_tests.assembly_tests import test_product_text as products
from tests.schedules_tests.templates_tests.assembly_tests import test_short_forms as short
from tests.schedules_tests.templates_tests.assembly_tests import test_winograd_assembly as winograd
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    NARROW,
    SYMBOL,
    TARGET,
    covering,
    largest_tile,
    left,
    lines_of,
    narrow_runs_here,
    numbers,
    run_by_tvm,
    run_watched,
    text_of,
)
from tests.schedules_tests.templates_tests.assembly_tests.assembled_cases import Convolution, check, choices
from tests.schedules_tests.templates_tests.assembly_tests.epilogues import FOLLOWING
from tests.schedules_tests.templates_tests.assembly_tests.test_elements import EXPRESSIONS, FIRST, SECOND
from tests.schedules_tests.templates_tests.instructions_tests.test_rounding import byte


def test_registers_and_names_are_the_instruction_set_s_own() -> None:
    text = "\tvpxord\tv15, v15, v15\n\tvmovups\tv0, [rsi+64]\n.Lv3:\n"
    assert AVX512.spelt(text) == "\tvpxord\tzmm15, zmm15, zmm15\n\tvmovups\tzmm0, [rsi+64]\n.Lv3:\n"
    assert AVX2.spelt(text) == "\tvpxor\tymm15, ymm15, ymm15\n\tvmovups\tymm0, [rsi+64]\n.Lv3:\n"
    assert (AVX512.lanes, AVX2.lanes) == (16, 8)


def test_who_has_which() -> None:
    assert vectors_of(TARGET) is AVX512
    assert vectors_of(WITH_TILES) is AVX512
    assert vectors_of(NARROW) is AVX2
    for other in (Target(kind="llvm", isa="generic", threads=1), Target(kind="llvm", isa="neon", threads=1)):
        with pytest.raises(OutOfScope):
            vectors_of(other)


WITH_TILES = Target(kind="llvm", isa="amx", mcpu="sapphirerapids", threads=2)


@pytest.mark.parametrize("shapes_of", [direct.SHAPES, winograd.SHAPES, products.SHAPES])
def test_a_processor_with_tiles_has_the_kernels_of_avx512(shapes_of: dict[str, Any]) -> None:
    without = replace(WITH_TILES, isa="avx512")
    written = 0
    for case in shapes_of.values():
        func = case.program()
        for config in covering(func, 2, target=WITH_TILES):
            text = assembly(func, config, without, SYMBOL)
            assert assembly(func, config, WITH_TILES, SYMBOL) == text
            written += bool(text)
    assert written > len(shapes_of)


@pytest.mark.parametrize("name", ["conv2d_bf16_uneven", "matmul_bf16_tiles", "matmul_u8s8_tiles"])
def test_products_in_tiles_are_left_to_the_compiler(name: str) -> None:
    func = short.CASES[name].func
    for config in covering(func, 4, target=WITH_TILES, algorithm=ALGORITHM):
        assert assembly(func, config, WITH_TILES, SYMBOL) == ""
    vectors = covering(func, 4, target=WITH_TILES, algorithm=0)
    assert any(assembly(func, config, WITH_TILES, SYMBOL) for config in vectors)


def narrowed(convolution: Convolution) -> Convolution:
    """In blocks of eight channels."""
    *data, own = convolution.data
    *weight, inner, _ = convolution.weight
    blocked = len(convolution.data) == 5
    return replace(convolution, data=(*data, 8) if blocked else (*data, own), weight=(*weight, min(inner, 8), 8))


@narrow_runs_here
@pytest.mark.parametrize("name", direct.SHAPES)
def test_convolutions(name: str) -> None:
    convolution = narrowed(direct.SHAPES[name])
    configs = covering(convolution.program(), direct.CONFIGS, algorithm=0, target=NARROW)
    check(convolution, configs, 1, NARROW)


def test_convolutions_have_every_choice() -> None:
    seen = choices(map(narrowed, direct.SHAPES.values()), direct.CONFIGS, NARROW, algorithm=0)
    assert seen["pad"] == seen["outer"] == {0, 1}
    assert {1, 2, 4, 8} <= seen["unroll"]
    assert {1, 2} <= seen["to"]
    assert {1, 2} <= seen["th"]


@narrow_runs_here
@pytest.mark.parametrize("following", FOLLOWING)
def test_what_follows(following: str) -> None:
    """Of the largest tile, which leaves few registers, of a sum in chunks and of any."""
    convolution = Convolution((1, 32, 4, 6, 8), (4, 32, 1, 1, 8, 8), following=following)
    func = convolution.program()
    largest = largest_tile(func, ("to", "th", "tw"), NARROW)
    assert largest.integer("to") * largest.integer("th") * largest.integer("tw") == 12
    configs = [largest, *covering(func, 1, depth=8, target=NARROW), *covering(func, 2, seed=1, target=NARROW)]
    check(convolution, [config for config in configs if config.integer("algorithm") == 0], 1, NARROW)


@narrow_runs_here
@winograd.every_way
@pytest.mark.parametrize("name", winograd.SHAPES)
def test_winograd(name: str, m: int, outer: int) -> None:
    convolution = narrowed(winograd.SHAPES[name])
    configs = covering(convolution.program(), 3, algorithm=m, outer=outer, target=NARROW)
    check(convolution, configs, int(name in winograd.COMPILED), NARROW, winograd.NEAR)


@narrow_runs_here
@pytest.mark.parametrize("name", products.SHAPES)
def test_products(name: str) -> None:
    product = replace(products.SHAPES[name], lanes=8)
    check(product, covering(product.program(), products.CONFIGS, target=NARROW), 1, NARROW)


def chain(of: Callable[..., tirx.Expr], rows: int = 1) -> tirx.PrimFunc:
    """What ``of`` makes of two tensors, in two axes."""
    shape = (rows, FIRST.size)
    x, y = (te.placeholder(shape, name=name) for name in "xy")
    return from_te(x, y, te.compute(shape, lambda i, j: of(x(i, j), y(i, j)), name="of"))


def is_equal(result: np.ndarray, expected: np.ndarray) -> bool:
    """NaN where NaN is expected, and nearly equal elsewhere."""
    return np.allclose(result, expected, rtol=2e-6, atol=1e-6, equal_nan=True)


@narrow_runs_here
@pytest.mark.parametrize("name", [name for name in EXPRESSIONS if name != "halves"])
def test_expressions_are_the_compiler_s(name: str) -> None:
    """Of every pair of special numbers."""
    func = chain(EXPRESSIONS[name])
    arrays = [FIRST.reshape(1, -1), SECOND.reshape(1, -1)]
    for config in covering(func, 2, target=NARROW):
        result = run_watched(text_of(func, config, target=NARROW), arrays, arrays[0].shape)
        assert is_equal(result, run(func, config, NARROW, arrays)), config.to_json()


QUANTISED: dict[str, tuple[str, Callable[[tirx.Expr, tirx.Expr], tirx.Expr]]] = {
    "unsigned": ("uint8", lambda x, y: byte(x + y, tirx.const(128.0, "float32"), "uint8")),
    "signed": ("int8", lambda x, y: byte(x + y, None, "int8")),
    "integers": ("int8", lambda x, y: (x.astype("int32") - y.astype("int32")).astype("int8")),
    "shifted": ("int32", lambda x, y: (x.astype("int32") << 3) + (y.astype("int32") >> 1)),
    "short floats": ("float16", lambda x, y: (x + y).astype("float16")),
}


@narrow_runs_here
@pytest.mark.parametrize("name", QUANTISED)
def test_bytes(name: str) -> None:
    dtype, of = QUANTISED[name]
    func = chain(of, rows=3)
    arrays = [array * 40 for array in numbers(func)]
    for config in covering(func, 3, target=NARROW):
        result = run_watched(text_of(func, config, target=NARROW), arrays, arrays[0].shape, dtype=np.dtype(dtype))
        assert np.array_equal(result, run(func, config, NARROW, arrays)), config.to_json()


BYTES = {
    case.name: case
    for case in (
        dot_conv_case("1x1", (1, 2, 6, 5, 8), (4, 2, 1, 1, 8, 8), U8S8),
        dot_conv_case("3x3", (1, 2, 7, 9, 8), (4, 2, 3, 3, 8, 8), U8S8, pads=(1, 1, 1, 1)),
        dot_conv_case("uneven", (2, 2, 7, 9, 8), (4, 2, 3, 2, 8, 8), U8S8, (2, 1), (1, 0, 2, 3), (1, 2)),
        dot_conv_case("sums alone", (1, 2, 4, 6, 8), (2, 2, 1, 1, 8, 8), U8S8, epilogue=False),
        dot_conv_case("long", (1, 64, 4, 4, 8), (4, 64, 1, 1, 8, 8), U8S8, epilogue=False),
        dot_matmul_case("rows", 28, 64, 8, 8, U8S8, bare=False),
        dot_matmul_case("vector", 1, 384, 6, 8, U8S8, bare=True),
    )
}


@narrow_runs_here
@pytest.mark.parametrize("name", BYTES)
def test_products_of_bytes(name: str) -> None:
    """Their sums are exact: no two products are added in 16 bits. The largest bytes are among them."""
    case = BYTES[name]
    arrays, shape, dtype = inputs(case.func), shapes(case.func)[-1], dtypes(case.func)[-1]
    arrays[0].flat[::3], arrays[1].flat[::2] = 255, -128
    expected, written = case.expected(*arrays), 0
    knobs = {knob.name for knob in claim(case.func, NARROW).space.knobs}
    fixed = {"algorithm": 0} if "algorithm" in knobs else {}
    for number, config in enumerate(covering(case.func, 8, target=NARROW, **fixed)):
        text = assembly(case.func, config, NARROW, SYMBOL)
        if text:
            assert np.array_equal(run_watched(text, arrays, shape, 1 + number % 3, dtype), expected), config.to_json()
            written += 1
    assert written >= 2


def test_too_many_sums_for_products_of_bytes_are_left_to_the_compiler() -> None:
    func = BYTES["1x1"].func
    by_sums: dict[int, set[bool]] = {}
    for config in covering(func, 40, algorithm=0, target=NARROW):
        sums = config.integer("to") * config.integer("th") * config.integer("tw")
        by_sums.setdefault(sums, set()).add(bool(assembly(func, config, NARROW, SYMBOL)))
    assert by_sums == {sums: {sums + 5 <= AVX2.count} for sums in by_sums}
    assert max(by_sums) == 12


@narrow_runs_here
def test_concatenations() -> None:
    parts = [te.placeholder(shape, name=f"x{number}") for number, shape in enumerate(((2, 3, 8), (2, 1, 8)))]
    func = from_te(*parts, concat(parts, 1))
    arrays = numbers(func)
    expected = np.concatenate(arrays, 1)
    for config in covering(func, 4, target=NARROW):
        text = text_of(func, config, target=NARROW)
        assert np.array_equal(run_watched(text, arrays, expected.shape, 3), expected)
        assert np.array_equal(run_by_tvm(text, arrays, expected.shape), expected)


def test_no_register_of_avx512_is_used() -> None:
    func = narrowed(winograd.SHAPES["wide"]).program()
    texts = [text_of(func, config, target=NARROW) for m in (0, 2, 4) for config in algorithms(func, m)]
    assert texts
    for text in texts:
        assert "zmm" not in text
        assert "{" not in text
        named = {word.strip(",") for line in lines_of(text) for word in line.split() if word.startswith("ymm")}
        assert named <= {f"ymm{number}" for number in range(16)}


def algorithms(func: tirx.PrimFunc, m: int) -> list[Config]:
    """Some configs of an algorithm."""
    return covering(func, 4, algorithm=m, target=NARROW)


def test_what_is_left_to_the_compiler() -> None:
    convolution = narrowed(direct.SHAPES["3x3"])
    config = covering(convolution.program(), 1, algorithm=0, target=NARROW)[0]
    assert assembly(convolution.program(), config, replace(NARROW, isa="generic"), "k") == ""
    wide = direct.SHAPES["3x3"].program()
    assert assembly(wide, claim(wide, TARGET).space.initial[0], NARROW, "k") == "", "blocks of 16 channels"
    assert left(chain(EXPRESSIONS["halves"]), NARROW), "numbers that become bfloat16"
    assert shapes(wide)[-1][-1] == 16
