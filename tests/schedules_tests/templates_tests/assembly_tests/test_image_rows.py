"""Images with borders: rows of every width, of which a vector holds whole pixels or parts of several."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import te, tirx

from schedules.templates.assembly.assembly_text import AssemblyText
from schedules.templates.assembly.image_rows import BorderedRows, Image, border_of, check_image
from schedules.templates.assembly.vectors import AVX512, OutOfScope
from schedules.templates.common.structure import Anchor, find_anchor
from schedules.templates.common.windows import Window
from schedules.templates.cpu.conv2d import conv2d
from tests.schedules_tests.programs import Pads, from_te
from tests.schedules_tests.templates_tests.assembly_tests.assembled import SYMBOL, run_watched, runs_here


def image(planes: int, height: int, width: int, lanes: int) -> Image:
    """Of ``planes`` channels or blocks of them."""
    plane = height * width * lanes * 4
    return Image(height, width, planes * plane, plane, width * lanes * 4, lanes * 4, 4 if lanes > 1 else plane)


@runs_here
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 0, 0, 0), (2, 0, 0, 3), (0, 4, 5, 0), (16, 16, 16, 16)], ids=str)
@pytest.mark.parametrize(("height", "width", "lanes"), [(3, 5, 16), (1, 1, 16), (4, 7, 1), (2, 16, 1), (3, 1, 1)])
def test_borders_are_zeros(height: int, width: int, lanes: int, pads: Pads) -> None:
    top, left, bottom, right = pads
    plain, planes = np.random.default_rng(0).standard_normal((3, height, width, lanes)).astype(np.float32), 3
    bordered = image(planes, height + top + bottom, width + left + right, lanes)
    rows = BorderedRows(image(planes, height, width, lanes), bordered, top, left)
    code = AssemblyText(SYMBOL)
    code.entry(2, [(".Lrows", planes * bordered.height)])
    code.loop_over_jobs(".Lrows", planes * bordered.height, 0, lambda: rows.all_rows(code, 0, 1, 0))
    right_one = np.pad(plain, ((0, 0), (top, bottom), (left, right), (0, 0)))
    for threads in (1, 3):
        assert np.array_equal(run_watched(code.text(), [plain], right_one.shape, threads), right_one)


@runs_here
@pytest.mark.parametrize("width", [1, 2, 3, 7, 15, 16, 17, 31, 33])
def test_borders_of_numbers(width: int) -> None:
    """Of every number of bytes that instructions of 64, 32, 16, 8 and 4 make up."""
    plain = np.random.default_rng(0).standard_normal((2, width, 1)).astype(np.float32)
    bordered = image(1, 4, 2 * width + 5, 1)
    rows = BorderedRows(image(1, 2, width, 1), bordered, 1, 5, border=int(np.float32(7).view(np.int32)))
    code = AssemblyText(SYMBOL)
    code.entry(2, [(".Lrows", 4)])
    code.loop_over_jobs(".Lrows", 4, 0, lambda: rows.all_rows(code, 0, 1, 0))
    right_one = np.pad(plain, ((1, 1), (5, width), (0, 0)), constant_values=7)
    assert np.array_equal(run_watched(code.text(), [plain], right_one.shape, 2), right_one)


@runs_here
def test_rows_lie_behind_an_offset() -> None:
    plain = np.arange(2 * 3 * 16, dtype=np.float32).reshape(2, 3, 16)
    rows = BorderedRows(image(1, 2, 3, 16), image(1, 2, 3, 16), 0, 0)
    code = AssemblyText(SYMBOL)
    code.entry(2, [(".Lrows", 2)])
    code.loop_over_jobs(".Lrows", 2, 0, lambda: rows.all_rows(code, 0, 1, 256))
    result = run_watched(code.text(), [plain], (64 + 96,))
    assert np.isnan(result[:64]).all()
    assert np.array_equal(result[64:], plain.ravel())


def anchor_of(data: tuple[int, ...], weight: tuple[int, ...], **geometry: object) -> tuple[tirx.PrimFunc, Anchor]:
    x, w = te.placeholder(data, name="x"), te.placeholder(weight, name="w")
    pads, groups, border = (
        geometry.get(name, default) for name, default in (("pads", (1,) * 4), ("groups", 1), ("border", 0))
    )
    func = from_te(x, w, conv2d(x, w, Window(weight[2:4], (1, 1), pads, (1, 1)), groups, border=border))
    anchor = find_anchor(func, "conv2d")
    assert anchor is not None
    return func, anchor


def test_distances_in_an_image() -> None:
    """Bytes from one number to the next along each axis, as NumPy has them."""
    _, blocked = anchor_of((2, 4, 6, 5, 16), (4, 4, 3, 3, 16, 16))
    strides = np.empty((2, 4, 8, 9, 16), np.float32).strides
    assert Image.of(blocked, 8, 9) == Image(8, 9, *strides)
    _, plain = anchor_of((2, 3, 6, 5), (4, 3, 3, 3, 1, 16))
    strides = np.empty((2, 3, 8, 9), np.float32).strides
    assert Image.of(plain, 8, 9) == Image(8, 9, *strides, strides[1])


OUT_OF_SCOPE = {
    "vectors of another length": ((1, 2, 6, 6, 8), (2, 2, 3, 3, 8, 8), {}),
    "channels that share vectors": ((1, 1, 6, 6, 16), (1, 13, 3, 3, 1, 16), {}),
    "a border that cuts the image": ((1, 2, 6, 6, 16), (2, 2, 3, 3, 16, 16), {"pads": (-1, 0, 1, 0)}),
}


@pytest.mark.parametrize("reason", OUT_OF_SCOPE)
def test_images_that_are_left_to_the_compiler(reason: str) -> None:
    data, weight, geometry = OUT_OF_SCOPE[reason]
    _, anchor = anchor_of(data, weight, **geometry)
    with pytest.raises(OutOfScope, match=reason):
        check_image(anchor, AVX512)


def test_images_in_scope() -> None:
    _, anchor = anchor_of((1, 2, 6, 6, 16), (2, 2, 3, 3, 16, 16))
    check_image(anchor, AVX512)
    for changed in (
        replace(anchor, prologue=("pad", "scale")),
        replace(anchor, data=-1),
        replace(anchor, geometry={**anchor.geometry, "span": 2}),
        replace(anchor, geometry={**anchor.geometry, "groups": 4}),
    ):
        with pytest.raises(OutOfScope):
            check_image(changed, AVX512)


def test_what_a_border_holds() -> None:
    """Four bytes of it; of floats only zeros."""
    for border, held in ((0, 0), (7, 0x07070707), (255, 0xFFFFFFFF)):
        x, w = (
            te.placeholder((1, 2, 6, 6, 16), "uint8", name="x"),
            te.placeholder((2, 2, 3, 3, 4, 16, 4), "int8", name="w"),
        )
        window = Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1))
        assert border_of(from_te(x, w, conv2d(x, w, window, border=border))) == held
    assert border_of(anchor_of((1, 2, 6, 6, 16), (2, 2, 3, 3, 16, 16))[0]) == 0
    with pytest.raises(OutOfScope, match="a border that is not zero"):
        border_of(anchor_of((1, 2, 6, 6, 16), (2, 2, 3, 3, 16, 16), border=3)[0])
