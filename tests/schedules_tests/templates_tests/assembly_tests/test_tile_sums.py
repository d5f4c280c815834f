"""Sums of register tiles: every loop nest, every shape of tile, with weights in the order of the loops."""

from __future__ import annotations

import ctypes
import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from schedules.templates.assembly.assembly_text import AssemblyText
from schedules.templates.assembly.tile_sums import (
    WRITTEN_OUT,
    Prefetch,
    SumLoop,
    TileSums,
    add_up,
    clear,
    load_weights,
)
from schedules.templates.assembly.vectors import AVX512
from tests.schedules_tests.programs import Array
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    TARGET,
    assembled,
    function_of,
    lines_of,
    linked,
    runs_here,
)

FLOAT, VECTOR = 4, 64


def code_of(tile: TileSums) -> AssemblyText:
    """void sums(numbers, weights, result (panels, numbers, 16))."""
    code = AssemblyText("sums")
    code.emit("mov r10, rdx", "mov r9, rsi")
    clear(code, tile)
    add_up(code, tile)
    for register in (register for panel in tile.sums() for register in panel):
        code.emit(f"vmovups [r10+{VECTOR * register}], zmm{register}")
    code.emit("vzeroupper", "ret")
    return code


def run(tile: TileSums, numbers: Array, weights: Array, folder: Path) -> Array:
    text = function_of("sums", code_of(tile))
    library = ctypes.CDLL(str(linked([assembled(text, folder / "t.o")], folder / "t.so")))
    result = np.full((len(tile.panels), len(tile.numbers), 16), np.nan, np.float32)
    library.sums(*[ctypes.c_void_p(array.ctypes.data) for array in (numbers, weights, result)])
    return result


def expected(tile: TileSums, numbers: Array, weights: Array) -> Array:
    """The terms of the sum have their numbers by the loops' strides, and their weights one behind the other."""
    result = np.zeros((len(tile.panels), len(tile.numbers), 16))
    turns = itertools.product(*(range(loop.trips) for loop in tile.loops))
    for term, indices in enumerate(turns):
        at = sum(index * loop.stride for index, loop in zip(indices, tile.loops, strict=True))
        for (p, panel), (n, number) in itertools.product(enumerate(tile.panels), enumerate(tile.numbers)):
            vector = weights[(panel + term * VECTOR) // FLOAT :][:16].astype(np.float64)
            result[p, n] += float(numbers[(number + at) // FLOAT]) * vector
    return result


def tile_of(panels: int, numbers: int, loops: tuple[SumLoop, ...], unroll: int) -> TileSums:
    terms = math.prod(loop.trips for loop in loops)
    return TileSums(
        tuple(12 * n for n in range(numbers)), tuple(p * terms * VECTOR for p in range(panels)), loops, unroll
    )


NESTS = {
    "one": ((SumLoop(12, 4),), 4),
    "one turn": ((SumLoop(8, 4),), 8),
    "long": ((SumLoop(400, 4),), 2),
    "two": ((SumLoop(3, 100), SumLoop(4, 8)), 1),
    "a convolution": ((SumLoop(2, 640), SumLoop(3, 160), SumLoop(3, 16), SumLoop(4, 4)), 2),
    "long convolution": ((SumLoop(3, 2000), SumLoop(5, 300), SumLoop(5, 64), SumLoop(16, 4)), 4),
    "of ones": ((SumLoop(1, 640), SumLoop(1, 160), SumLoop(1, 16), SumLoop(4, 4)), 1),
    "first layer": ((SumLoop(3, 4000), SumLoop(7, 200), SumLoop(7, 4), SumLoop(1, 4000)), 1),
}
"""Name → loops and unroll: with those inside written out, looped over, and both."""

TILES = ((1, 1), (1, 28), (28, 1), (2, 14), (14, 2), (4, 7), (7, 4), (5, 5), (3, 8), (6, 3))
"""Vectors of weights, numbers: of 28 sums too."""


@runs_here
@pytest.mark.parametrize("nest", NESTS)
def test_loops(nest: str, tmp_path: Path) -> None:
    loops, unroll = NESTS[nest]
    rng = np.random.default_rng(0)
    for panels, numbers in ((1, 1), (2, 3), (7, 4)):
        tile = tile_of(panels, numbers, loops, unroll)
        data, weights = rng.standard_normal(20_000).astype(np.float32), rng.standard_normal(150_000).astype(np.float32)
        folder = tmp_path / f"{panels}"
        folder.mkdir()
        right = expected(tile, data, weights)
        np.testing.assert_allclose(run(tile, data, weights, folder), right, rtol=1e-5, atol=1e-5 * np.abs(right).max())
        asking = replace(tile, prefetch=Prefetch(len(loops) - 1, (0, VECTOR), 2 * VECTOR))
        (folder / "asking").mkdir()
        assert np.array_equal(run(asking, data, weights, folder / "asking"), run(tile, data, weights, folder))


@runs_here
@pytest.mark.parametrize(("panels", "numbers"), TILES)
def test_tiles(panels: int, numbers: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tile = tile_of(panels, numbers, (SumLoop(2, 256), SumLoop(8, 4)), 2)
    data, weights = rng.standard_normal(1000).astype(np.float32), rng.standard_normal(20_000).astype(np.float32)
    right = expected(tile, data, weights)
    np.testing.assert_allclose(run(tile, data, weights, tmp_path), right, rtol=1e-5, atol=1e-5 * np.abs(right).max())


@pytest.mark.parametrize(("panels", "numbers"), TILES)
def test_registers(panels: int, numbers: int) -> None:
    """Sums have registers of their own, and all others are free."""
    tile = tile_of(panels, numbers, (SumLoop(8, 4),), 2)
    used = [register for panel in tile.sums() for register in panel]
    assert sorted([*used, *tile.free()]) == list(range(TARGET.vector_registers))
    assert [len(panel) for panel in tile.sums()] == [numbers] * panels


def test_what_is_needed_most_often_is_held() -> None:
    """A step of 2 × 5 sums loads two vectors and spreads five numbers; one that fits no register is read by sums."""

    def counts(panels: int, numbers: int) -> tuple[int, int, int]:
        lines = lines_of(code_of(tile_of(panels, numbers, (SumLoop(1, 4),), 1)).text())
        loads = sum("vmovups zmm" in line for line in lines)
        spread, within = sum("vbroadcastss" in line for line in lines), sum("{1to16}" in line for line in lines)
        return loads, spread, within

    assert counts(2, 5) == (2, 5, 0)
    assert counts(5, 2) == (5, 2, 0)
    assert counts(1, 5) == (1, 0, 5)
    assert counts(5, 1) == (0, 1, 0)
    assert counts(4, 7) == (3, 7, 0)
    assert counts(7, 4) == (0, 4, 0)


def test_short_loops_are_written_out() -> None:
    def products_and_jumps(loops: tuple[SumLoop, ...], numbers: int) -> tuple[int, int]:
        text = code_of(tile_of(1, numbers, loops, 1)).text()
        return text.count("vfmadd231ps"), text.count("jnz")

    assert products_and_jumps((SumLoop(7, 4), SumLoop(7, 4)), 2) == (98, 0)
    assert products_and_jumps((SumLoop(7, 4), SumLoop(7, 4)), 3) == (21, 1)
    assert products_and_jumps((SumLoop(WRITTEN_OUT + 1, 4),), 1) == (1, 1)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_is_asked_for_ahead(level: int) -> None:
    """In every turn of the loop so many lines, and the base moves on; or behind rsi, which moves by itself."""
    tile = tile_of(1, 2, (SumLoop(2, 400), SumLoop(3, 100), SumLoop(4, 4)), 2)
    lines = lines_of(code_of(replace(tile, prefetch=Prefetch(level, (0, 640), 128))).text())
    turns = (2, 6, 12)[level]
    assert lines.count("prefetcht1 [r9+0]") == lines.count("prefetcht1 [r9+640]") == lines.count("add r9, 128") == turns
    own = lines_of(code_of(replace(tile, prefetch=Prefetch(level, (4096,), 0, "rsi", "t0"))).text())
    asked = [int(line.split("+")[1].rstrip("]")) - 4096 for line in own if line.startswith("prefetcht0 [rsi+")]
    assert asked == [turn * 24 // turns * VECTOR for turn in range(turns)]


@runs_here
@pytest.mark.parametrize(("panels", "numbers"), [(1, 1), (1, 9), (2, 5), (3, 2), (5, 1)])
def test_weights_that_stay_in_registers(panels: int, numbers: int, tmp_path: Path) -> None:
    """They are loaded once, and read by every tile from where they are."""
    tile = replace(tile_of(panels, numbers, (SumLoop(1, 256), SumLoop(3, 4)), 1), resident=True)
    assert tile.can_hold
    assert len(tile.free()) == AVX512.count - panels * numbers - panels * 3
    rng = np.random.default_rng(0)
    data, weights = rng.standard_normal(1000).astype(np.float32), rng.standard_normal(1000).astype(np.float32)
    code = AssemblyText("sums")
    code.emit("push r12", "mov r10, rdx", "mov r12, rsi", "xor esi, esi")
    load_weights(code, tile)
    for _ in range(2):
        clear(code, tile)
        code.emit("mov r9, rdi")
        add_up(code, tile)
        code.emit("mov rdi, r9")
    for register in (register for panel in tile.sums() for register in panel):
        code.emit(f"vmovups [r10+{VECTOR * register}], zmm{register}")
    code.emit("pop r12", "vzeroupper", "ret")
    library = ctypes.CDLL(str(linked([assembled(function_of("sums", code), tmp_path / "t.o")], tmp_path / "t.so")))
    result = np.full((panels, numbers, 16), np.nan, np.float32)
    library.sums(*[ctypes.c_void_p(array.ctypes.data) for array in (data, weights, result)])
    right = expected(tile, data, weights)
    np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-5 * np.abs(right).max())


def test_weights_that_do_not_fit_beside_the_sums_do_not_stay() -> None:
    assert not tile_of(4, 7, (SumLoop(3, 4),), 1).can_hold
    assert tile_of(3, 4, (SumLoop(6, 4),), 1).can_hold
    assert not tile_of(3, 4, (SumLoop(7, 4),), 1).can_hold
    assert not tile_of(1, 1, (SumLoop(200, 4),), 1).can_hold
