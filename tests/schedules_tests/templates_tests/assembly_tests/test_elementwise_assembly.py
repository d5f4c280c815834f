"""Element-wise chains and concatenations in assembly: every way a tensor is read, every number of jobs and threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from schedules.lower import claim
from schedules.target import Target
from schedules.templates.common.movements import concat
from tests.schedules_tests.programs import Array, Shape, from_te
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    TARGET,
    covering,
    left,
    numbers,
    run_by_tvm,
    run_watched,
    runs_here,
    text_of,
)

CONFIGS = 6


def zero() -> tirx.Expr:
    return tirx.const(0, "float32")


def chain(shape: Shape, shapes: Sequence[Shape], of: Callable[..., Any], steps: int = 1) -> tirx.PrimFunc:
    """Stages that add what ``of`` makes of tensors that broadcast, and then take what is positive."""
    tensors = [te.placeholder(own_shape, name=f"x{number}") for number, own_shape in enumerate(shapes)]

    def at(tensor: te.Tensor, index: Sequence[tirx.Expr]) -> tirx.Expr:
        own = index[len(index) - len(tensor.shape) :]
        return tensor(*[0 if int(size) == 1 else i for i, size in zip(own, tensor.shape, strict=True)])

    out = te.compute(shape, lambda *i: of(*[at(tensor, i) for tensor in tensors]), name="of")
    for _ in range(steps):
        out = positive(out)
    return from_te(*tensors, out)


def positive(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: te.max(x(*i), zero()), name="positive")


BLOCKED = (2, 3, 5, 7, 16)
CHAINS: dict[str, tuple[tirx.PrimFunc, Callable[..., Array]]] = {
    "of one tensor": (chain(BLOCKED, [BLOCKED], lambda x: x * x), lambda x: np.maximum(x * x, 0)),
    "scale and shift by channel": (
        chain(BLOCKED, [BLOCKED, (1, 3, 1, 1, 16), (1, 3, 1, 1, 16)], lambda x, s, t: x * s + t),
        lambda x, s, t: np.maximum(x * s + t, 0),
    ),
    "a gate of every channel": (
        chain(BLOCKED, [BLOCKED, (1, 3, 1, 1, 16)], lambda x, g: x * te.sigmoid(g), 0),
        lambda x, g: x / (1 + np.exp(-g)),
    ),
    "one vector for all": (
        chain(BLOCKED, [BLOCKED, (1, 1, 1, 1, 16)], lambda x, s: x - s, 0),
        lambda x, s: x - s,
    ),
    "rows and a row": (chain((6, 48), [(6, 48), (48,)], lambda x, s: x + s), lambda x, s: np.maximum(x + s, 0)),
    "a map for every picture": (
        chain((4, 3, 32), [(4, 3, 32), (1, 3, 32)], lambda x, s: x * s, 0),
        lambda x, s: x * s,
    ),
    "two of one size": (
        chain((64,), [(64,), (64,)], lambda x, y: x / (y * y + x * x), 0),
        lambda x, y: x / (y**2 + x**2),
    ),
    "one vector": (chain((1, 16), [(1, 16), (16,)], lambda x, s: x + s), lambda x, s: np.maximum(x + s, 0)),
}


@runs_here
@pytest.mark.parametrize("name", CHAINS)
def test_chains(name: str) -> None:
    func, by_numpy = CHAINS[name]
    assert claim(func, TARGET).template == "elementwise"
    arrays = numbers(func)
    expected = by_numpy(*[array.astype(np.float64) for array in arrays])
    for config in covering(func, CONFIGS):
        text = text_of(func, config)
        for threads in (1, 2, 5):
            result = run_watched(text, arrays, expected.shape, threads)
            np.testing.assert_allclose(result, expected, rtol=2e-6, atol=1e-6, err_msg=config.to_json())
        assert np.array_equal(run_by_tvm(text, arrays, expected.shape), result)


CONCATENATED: dict[str, tuple[list[Shape], int]] = {
    "blocks of channels": ([(1, 3, 5, 7, 16), (1, 1, 5, 7, 16), (1, 4, 5, 7, 16)], 1),
    "of two pictures": ([(2, 3, 5, 7, 16), (2, 2, 5, 7, 16)], 1),
    "pictures": ([(1, 3, 2, 2, 16), (3, 3, 2, 2, 16)], 0),
    "columns": ([(3, 16), (3, 48)], 1),
    "one behind another": ([(1, 1, 1, 1, 16)] * 9, 1),
}


@runs_here
@pytest.mark.parametrize("name", CONCATENATED)
def test_concatenations(name: str) -> None:
    shapes, axis = CONCATENATED[name]
    parts = [te.placeholder(shape, name=f"x{number}") for number, shape in enumerate(shapes)]
    func = from_te(*parts, concat(parts, axis))
    arrays = numbers(func)
    expected = np.concatenate(arrays, axis)
    for config in covering(func, CONFIGS):
        text = text_of(func, config)
        for threads in (1, 3):
            assert np.array_equal(run_watched(text, arrays, expected.shape, threads), expected), config.to_json()


def test_what_is_left_to_the_compiler() -> None:
    x = te.placeholder((4, 32), name="x")
    turned = te.compute((32, 4), lambda i, j: x(j, i), name="turned")
    assert left(from_te(x, turned)), "elements of other places"
    doubled = te.compute((4, 32), lambda i, j: x(i, j) * 2, name="doubled")
    mirrored = te.compute((4, 32), lambda i, j: doubled(3 - i, j) + doubled(i, j), name="mirrored")
    assert left(from_te(x, mirrored)), "elements of an earlier stage of other places"
    blocked = te.compute((4, 2, 16), lambda i, j, k: doubled(i, j * 16 + k), name="blocked")
    assert left(from_te(x, blocked)), "elements of an earlier stage of another shape"
    assert left(chain((4, 24), [(4, 24)], lambda x: x + x)), "no whole vectors"
    assert left(chain((4, 32), [(4, 32), (4, 1)], lambda x, y: x + y)), "one number for a row"
    assert left(chain((4, 32), [(4, 32)], lambda x: x + x), Target(kind="llvm", isa="generic", threads=2))
    assert left(chain((2, 2, 32), [(2, 2, 32), (2, 1, 32), (1, 2, 32)], lambda x, y, z: x + y * z)), "two orders"
    parts = [te.placeholder(shape, name="x") for shape in ((3, 16), (3, 8))]
    assert left(from_te(*parts, concat(parts, 1))), "pieces of half a vector"
    parts = [te.placeholder((40, 16), name=f"x{number}") for number in range(2)]
    assert left(from_te(*parts, concat(parts, 1))), "many pieces"
    assert left(from_te(parts[0], concat([parts[0], parts[0]], 0))), "a part that is read twice"
