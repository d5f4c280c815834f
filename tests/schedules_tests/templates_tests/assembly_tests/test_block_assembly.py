"""Images into blocks of channels and back in assembly: whole and cut tiles, every number of jobs and threads."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from autotune.importer.layouts.packing import block_array
from schedules.target import Target
from schedules.templates.common.movements import from_blocks, to_blocks
from tests.schedules_tests.programs import Array, Shape, from_te
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    covering,
    left,
    numbers,
    run_by_tvm,
    run_watched,
    runs_here,
    text_of,
)

IMAGES: list[Shape] = [
    (1, 32, 4, 8),
    (2, 48, 5, 7),
    (3, 21, 4, 8),
    (2, 35, 3, 7),
    (1, 5, 9, 9),
    (2, 16, 1, 1),
    (1, 64, 56, 56),
]


def program(image: Shape, blocked: bool, lanes: int = 16, dtype: str = "float32") -> tirx.PrimFunc:
    n, channels, height, width = image
    if blocked:
        x = te.placeholder(image, dtype, name="x")
        return from_te(x, to_blocks(x, lanes))
    x = te.placeholder((n, -(-channels // lanes), height, width, lanes), dtype, name="x")
    return from_te(x, from_blocks(x, channels))


def expected_of(array: Array, image: Shape, blocked: bool) -> Array:
    if blocked:
        return block_array(array, 16)
    n, _, height, width, _ = array.shape
    return array.transpose(0, 1, 4, 2, 3).reshape(n, -1, height, width)[:, : image[1]]


@runs_here
@pytest.mark.parametrize("blocked", [True, False], ids=["into blocks", "back"])
@pytest.mark.parametrize("image", IMAGES, ids=str)
def test_every_number_is_in_its_place(image: Shape, blocked: bool) -> None:
    func = program(image, blocked)
    (array,) = numbers(func)
    expected = np.ascontiguousarray(expected_of(array, image, blocked))
    for config in covering(func, 4):
        text = text_of(func, config)
        for threads in (1, 2, 5):
            result = run_watched(text, [array], expected.shape, threads)
            assert np.array_equal(result, expected), (config.to_json(), threads)
    assert np.array_equal(run_by_tvm(text, [array], expected.shape), expected)


def test_what_is_left_to_the_compiler() -> None:
    assert not left(program((1, 32, 4, 8), True))
    assert left(program((1, 32, 4, 8), True), Target(kind="llvm", isa="avx2", threads=2))
    assert left(program((1, 32, 4, 8), True, lanes=8)), "blocks of eight"
    assert left(program((1, 32, 4, 8), True, dtype="uint8")), "bytes"
