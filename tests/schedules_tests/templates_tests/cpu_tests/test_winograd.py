"""Winograd configs: accurate for every tile size, odd picture and epilogue, and their weights a pure rewrite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from tvm import te, tirx

from schedules.config import Config
from schedules.lower import claim, loss, repack
from schedules.target import Target
from schedules.templates.common.windows import Window
from schedules.templates.common.winograd_transforms import AT, BT
from schedules.templates.common.winograd_transforms import G as GT
from schedules.templates.cpu.conv2d import conv2d
from schedules.templates.cpu.winograd import transform_weight
from tests.schedules_tests.programs import Array, from_te, run

TARGET = Target(kind="llvm", isa="avx512", threads=2)
BLOCKS, LANES = 2, 8

WORST = {2: 3e-6, 4: 3e-5}
"""m → largest error against outputs of unit variance. The direct method's is some 1e-6."""

Epilogue = Callable[[te.Tensor, te.Tensor], te.Tensor]


def identity(x: te.Tensor, out: te.Tensor) -> te.Tensor:
    return out


def residual_of_its_input(x: te.Tensor, out: te.Tensor) -> te.Tensor:
    joined = te.compute(out.shape, lambda *i: out(*i) + x(*i), name="joined")
    return te.compute(out.shape, lambda *i: te.max(joined(*i), tirx.const(0.0, "float32")), name="relu")


def scaled_twice(x: te.Tensor, out: te.Tensor) -> te.Tensor:
    """An epilogue with a buffer between its blocks."""
    half = te.compute(out.shape, lambda *i: out(*i) * tirx.const(0.5, "float32"), name="half")
    return te.compute(out.shape, lambda *i: half(*i) * half(*i), name="square")


EXPECTED: dict[Epilogue, Callable[[Array, Array], Array]] = {
    identity: lambda x, out: out,
    residual_of_its_input: lambda x, out: np.maximum(out + x, 0.0),
    scaled_twice: lambda x, out: (out / 2) ** 2,
}


def program(height: int, width: int, epilogue: Epilogue, weight_first: bool = False) -> tirx.PrimFunc:
    x = te.placeholder((1, BLOCKS, height, width, LANES), name="x")
    w = te.placeholder((BLOCKS, BLOCKS, 3, 3, LANES, LANES), name="w")
    out = epilogue(x, conv2d(x, w, Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1))))
    return from_te(w, x, out) if weight_first else from_te(x, w, out)


def arrays(height: int, width: int) -> tuple[Array, Array]:
    """Data and filters whose convolution has unit variance."""
    rng = np.random.default_rng(height * 100 + width)
    x = rng.standard_normal((1, BLOCKS, height, width, LANES)).astype(np.float32)
    w = rng.standard_normal((BLOCKS, BLOCKS, 3, 3, LANES, LANES)) / np.sqrt(9 * BLOCKS * LANES)
    return x, w.astype(np.float32)


def exact(x: Array, w: Array) -> Array:
    """The convolution in double precision."""
    around = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1), (0, 0)])
    seen = sliding_window_view(around, (3, 3), axis=(2, 3))
    return np.einsum("nchwiyx,ocyxib->nohwb", seen, w.astype(np.float64))


def config_of(func: tirx.PrimFunc, m: int, outer: int) -> Config:
    """Any config of the space with this algorithm and this way to run its stages."""
    space = claim(func, TARGET).space
    configs = (space.config(row) for row in np.random.default_rng(m + outer).permutation(space.rows))
    return next(c for c in configs if (c.integer("algorithm"), c.integer("outer")) == (m, outer))


@pytest.mark.parametrize("outer", [0, 1], ids=["phases", "chunks"])
@pytest.mark.parametrize("m", sorted(WORST))
@pytest.mark.parametrize(
    ("height", "width", "epilogue"),
    [
        (7, 7, identity),
        (13, 9, identity),
        (27, 14, identity),
        (14, 27, residual_of_its_input),
        (13, 13, residual_of_its_input),
        (7, 13, scaled_twice),
    ],
)
def test_it_is_accurate(height: int, width: int, epilogue: Epilogue, m: int, outer: int) -> None:
    func = program(height, width, epilogue)
    x, w = arrays(height, width)
    result = run(func, config_of(func, m, outer), TARGET, [x, w])
    right = EXPECTED[epilogue](x, exact(x, w))
    assert np.abs(result - right).max() < WORST[m]


@pytest.mark.parametrize("epilogue", [identity, residual_of_its_input])
def test_parameters_keep_their_places(epilogue: Epilogue) -> None:
    func = program(7, 9, epilogue, weight_first=True)
    x, w = arrays(7, 9)
    result = run(func, config_of(func, 2, 0), TARGET, [w, x])
    assert np.abs(result - EXPECTED[epilogue](x, exact(x, w))).max() < WORST[2]


@pytest.mark.parametrize("m", sorted(WORST))
def test_the_transforms_are_a_convolution(m: int) -> None:
    """F(m, 3) in one dimension: Aᵀ((G g) ⊙ (Bᵀ d)) is the valid correlation of d (m + 2,) with g (3,)."""
    rng = np.random.default_rng(m)
    d, g = rng.standard_normal(m + 2), rng.standard_normal(3)
    products = (np.asarray(GT[m]) @ g) * (np.asarray(BT[m]) @ d)
    np.testing.assert_allclose(np.asarray(AT[m]) @ products, np.correlate(d, g, "valid"), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("m", sorted(WORST))
def test_weights_are_transformed_filter_by_filter(m: int) -> None:
    _, w = arrays(3, 3)
    u = transform_weight(w, m)
    assert u.shape == (m + 2, m + 2, BLOCKS, BLOCKS, LANES, LANES)
    assert u.dtype == w.dtype
    g = np.asarray(GT[m])
    np.testing.assert_allclose(u[:, :, 1, 0, 3, 5], g @ w[1, 0, :, :, 3, 5] @ g.T, rtol=1e-5, atol=1e-7)


def test_only_winograd_repacks_and_loses_accuracy() -> None:
    func = program(8, 8, identity)
    names = {m: repack(func, config_of(func, m, 0)) for m in (0, 2, 4)}
    assert names[0] == {}
    assert {m: how[1].name for m, how in names.items() if m} == {2: "winograd-2", 4: "winograd-4"}
    assert [loss(config_of(func, m, 0)) for m in (0, 2, 4)] == [0, 2, 4]


@pytest.mark.parametrize(
    ("data", "weight", "strides", "dilation"),
    [
        ((1, 2, 8, 8, 8), (2, 2, 3, 3, 8, 8), 2, 1),
        ((1, 2, 8, 8, 8), (2, 2, 3, 3, 8, 8), 1, 2),
        ((1, 2, 8, 8, 8), (2, 2, 5, 5, 8, 8), 1, 1),
        ((1, 3, 8, 8), (2, 3, 3, 3, 1, 8), 1, 1),
        ((1, 2, 8, 8, 8), (2, 13, 3, 3, 1, 8), 1, 1),
    ],
    ids=["strided", "dilated", "five", "plain", "ragged_channels"],
)
def test_what_it_cannot_do_has_no_such_config(
    data: tuple[int, ...], weight: tuple[int, ...], strides: int, dilation: int
) -> None:
    x, w = te.placeholder(data, name="x"), te.placeholder(weight, name="w")
    out = conv2d(x, w, Window(weight[2:4], (strides, strides), (1, 1, 1, 1), (dilation, dilation)))
    space = claim(from_te(x, w, out), TARGET).space
    assert next(knob for knob in space.knobs if knob.name == "algorithm").choices == (0,)


def byte_program(height: int, width: int, border: int) -> tirx.PrimFunc:
    x = te.placeholder((1, BLOCKS, height, width, LANES), "uint8", name="x")
    w = te.placeholder((BLOCKS, BLOCKS, 3, 3, LANES // 4, LANES, 4), "int8", name="w")
    return from_te(x, w, conv2d(x, w, Window((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)), border=border))


@pytest.mark.parametrize("outer", [0, 1], ids=["phases", "chunks"])
@pytest.mark.parametrize("m", sorted(WORST))
@pytest.mark.parametrize(("height", "width", "border"), [(7, 9, 0), (14, 13, 128), (8, 27, 255)])
def test_sums_of_bytes_are_a_few_units_off(height: int, width: int, border: int, m: int, outer: int) -> None:
    rng = np.random.default_rng(height)
    x = rng.integers(0, 256, (1, BLOCKS, height, width, LANES), dtype=np.uint8)
    w = rng.integers(-128, 128, (BLOCKS, BLOCKS, 3, 3, LANES // 4, LANES, 4), dtype=np.int8)
    by_channel = w.swapaxes(-1, -2).reshape(BLOCKS, BLOCKS, 3, 3, LANES, LANES)
    right = (
        exact(x - float(border), by_channel)
        + border * by_channel.sum(axis=(1, 2, 3, 4), dtype=np.float64)[:, None, None, :]
    )
    func = byte_program(height, width, border)
    result = run(func, config_of(func, m, outer), TARGET, [x, w])
    assert result.dtype == np.int32
    assert np.abs(result - right).max() <= 0.5 + 2 * WORST[m] * np.abs(right).max()


def test_bytes_stay_integers_where_their_instruction_is_faster() -> None:
    func = byte_program(8, 8, 0)
    slow, fast = (replace(TARGET, isa="avx512", features=features) for features in ((), ("+avx512vnni", "+avx512vl")))
    choices = [
        next(knob for knob in claim(func, processor).space.knobs if knob.name == "algorithm").choices
        for processor in (slow, fast)
    ]
    assert choices == [(0, 2, 4), (0,)]
