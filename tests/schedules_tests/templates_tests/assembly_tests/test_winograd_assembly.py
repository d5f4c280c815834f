"""Winograd's convolutions in assembly: accurate for every picture, tile size and epilogue, as they are scheduled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from schedules.lower import assembly, claim
from schedules.templates.assembly.winograd_assembly import Tiles
from schedules.templates.cpu.passes import workspaces_of
from tests.schedules_tests.programs import shapes
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    NARROW,
    SYMBOL,
    Watched,
    assembled,
    covering,
    guarded,
    library_of,
    numbers,
    repacked,
    runs_here,
    text_of,
)
from tests.schedules_tests.templates_tests.assembly_tests.assembled_cases import Convolution, check, is_left

NEAR = {2: 3e-6, 4: 4e-5}
"""m → how far a kernel may be from NumPy in double precision, in parts of the largest number."""

PADS = (1, 1, 1, 1)
SHAPES = {
    "even": Convolution((1, 2, 8, 8, 16), (4, 2, 3, 3, 16, 16), pads=PADS),
    "odd": Convolution((1, 1, 7, 9, 16), (2, 1, 3, 3, 16, 16), pads=PADS),
    "wide": Convolution((1, 2, 6, 27, 16), (2, 2, 3, 3, 16, 16), pads=PADS, following="residual"),
    "batch": Convolution((3, 1, 13, 6, 16), (2, 1, 3, 3, 16, 16), pads=PADS, following="residual"),
    "grouped": Convolution((2, 4, 9, 7, 16), (4, 2, 3, 3, 16, 16), pads=PADS, groups=2, following="relu"),
    "without border": Convolution((1, 2, 10, 11, 16), (2, 2, 3, 3, 16, 16), following="none"),
    "uneven border": Convolution((1, 2, 9, 12, 16), (3, 2, 3, 3, 16, 16), pads=(0, 2, 1, 0)),
    "large": Convolution((1, 1, 22, 33, 16), (1, 1, 3, 3, 16, 16), pads=PADS, following="hard swish"),
}
"""Name → a convolution; its height and width leave every rest of 2 and of 4 between them."""

COMPILED = ("odd", "batch", "grouped")
"""Those that are compared with the compiler's kernel too."""

every_way = pytest.mark.parametrize(("m", "outer"), [(2, 0), (2, 1), (4, 0), (4, 1)], ids=lambda value: str(value))


def test_pictures_leave_every_rest() -> None:
    sizes = [shapes(convolution.program())[-1][2:4] for convolution in SHAPES.values()]
    assert {height % 4 for height, _ in sizes} == {width % 4 for _, width in sizes} == {0, 1, 2, 3}


@runs_here
@every_way
@pytest.mark.parametrize("name", SHAPES)
def test_pictures_and_knobs(name: str, m: int, outer: int) -> None:
    func = SHAPES[name].program()
    check(SHAPES[name], covering(func, 3, algorithm=m, outer=outer), compiled=int(name in COMPILED), near=NEAR)


@runs_here
@pytest.mark.parametrize("following", ["none", "two residuals", "leaky", "relu6", "gelu", "silu", "tanh"])
def test_epilogues(following: str) -> None:
    convolution = replace(SHAPES["odd"], following=following)
    func = convolution.program()
    check(convolution, covering(func, 1, algorithm=2, outer=0) + covering(func, 1, algorithm=4, outer=1), 1, near=NEAR)


def test_an_epilogue_that_needs_more_registers_than_a_transform_leaves_is_left_to_the_compiler() -> None:
    func = replace(SHAPES["odd"], following="crowded").program()
    for m in NEAR:
        assert is_left(func, algorithm=m)
    assert text_of(func, covering(func, 1, algorithm=0)[0])


def test_vectors_of_eight_channels_are_left_to_the_compiler() -> None:
    func = Convolution((1, 2, 8, 8, 8), (2, 2, 3, 3, 8, 8), pads=PADS).program()
    assert is_left(func, algorithm=2)


def test_vectors_of_another_length_are_left_to_the_compiler() -> None:
    func = SHAPES["even"].program()
    configs = claim(func, NARROW).space.sample(300, np.random.default_rng(0))
    assert {config.integer("algorithm") for config in configs} == {0, 2, 4}
    assert {assembly(func, config, NARROW, "k") for config in configs} == {""}


def test_tiles_lie_where_the_layout_says() -> None:
    """(blocks, x, y, rows of tiles, tiles, lane) of floats."""
    tiles = Tiles(blocks=3, side=4, down=5, across=7, vector=64)
    strides = np.empty((3, 4, 4, 5, 7, 16), np.float32).strides
    assert (tiles.block, tiles.number, tiles.row) == (strides[0], strides[2], strides[3])
    assert tiles.size == 3 * strides[0]
    assert tiles.at("rbx", 2, 3) == f"[rbx+{2 * strides[1] + 3 * strides[2]}]"


@runs_here
@every_way
def test_workspaces_are_told_and_asked_for(tmp_path: object, m: int, outer: int) -> None:
    """The image with its border once; V and M once too, or in every thread."""
    convolution = SHAPES["batch"]
    func = convolution.program()
    config = covering(func, 1, algorithm=m, outer=outer)[0]
    text, arrays = text_of(func, config), repacked(func, config, numbers(func))
    told = workspaces_of(assembled(text, tmp_path / "kernel.o").read_bytes(), SYMBOL)
    (_, _, height, width, _), (down, across) = shapes(func)[-1], (-(-13 // m), -(-6 // m))
    assert (height, width) == (13, 6)
    image = 3 * (down * m + 2) * (across * m + 2) * 64
    rows = config.integer("rows") if outer else 3 * down
    tiles = (1 + 2) * (m + 2) ** 2 * rows * across * 64
    assert told == ((image, tiles) if outer else (image + tiles, 0))
    with library_of(text) as library:
        watched = Watched(library, threads=3)
        assert watched.run([guarded(array)[0] for array in (*arrays, np.empty(shapes(func)[-1], np.float32))]) == 0
    assert watched.asked == ([image, tiles, tiles, tiles] if outer else [image + tiles])
    assert watched.wrong == []


@runs_here
@pytest.mark.parametrize("starved", [0, 1, 2, 3])
def test_a_kernel_without_memory_fails_and_gives_back_what_it_has(starved: int) -> None:
    convolution = SHAPES["batch"]
    func = convolution.program()
    config = covering(func, 1, algorithm=4, outer=1)[0]
    arrays = repacked(func, config, numbers(func))
    with library_of(text_of(func, config)) as library:
        watched = Watched(library, threads=3, starved=starved)
        code = watched.run([guarded(array)[0] for array in (*arrays, np.empty(shapes(func)[-1], np.float32))])
    assert code == -1
    assert watched.wrong == []
