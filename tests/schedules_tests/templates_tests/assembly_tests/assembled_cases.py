"""Products and convolutions for the tests of assembly, what they should give, and the comparison of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from tvm import te, tirx

from schedules.config import Config
from schedules.lower import assembly
from schedules.target import Target
from schedules.templates.common.windows import Window
from schedules.templates.cpu.conv2d import conv2d
from schedules.templates.cpu.depthwise import depthwise
from schedules.templates.cpu.matmul import matmul
from tests.schedules_tests.programs import Array, Pads, Shape, from_te, padded, run, shapes, windows
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    TARGET,
    covering,
    is_near,
    numbers,
    repacked,
    run_by_tvm,
    run_watched,
    text_of,
)
from tests.schedules_tests.templates_tests.assembly_tests.epilogues import EXACT_STEPS, FOLLOWING


class Case(Protocol):
    """An operator and what follows it, by its name in ``FOLLOWING``."""

    @property
    def following(self) -> str: ...

    def program(self) -> tirx.PrimFunc:
        """The normalised function."""

    def expected(self, *arrays: Array) -> Array:
        """Return the result, computed by NumPy in double precision."""


@dataclass(frozen=True)
class Product:
    """x (rows, depth) by ``panels`` of ``lanes`` columns, and what follows."""

    rows: int
    depth: int
    panels: int
    following: str = "bias"
    lanes: int = 16

    def program(self) -> tirx.PrimFunc:
        x = te.placeholder((self.rows, self.depth), name="x")
        w = te.placeholder((self.panels, self.depth, self.lanes), name="w")
        after = FOLLOWING[self.following].after(matmul(x, w), (self.panels * self.lanes,), lambda i: (i[1],))
        return from_te(x, w, *after)

    def expected(self, x: Array, w: Array, *operands: Array) -> Array:
        out = x.astype(np.float64) @ w.astype(np.float64).transpose(1, 0, 2).reshape(self.depth, -1)
        return FOLLOWING[self.following].expected(out, operands)


@dataclass(frozen=True)
class Depthwise:
    """One depthwise convolution of blocks of ``lanes`` channels, and what follows it."""

    data: Shape
    filters: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    following: str = "bias"
    lanes: int = 16

    def program(self) -> tirx.PrimFunc:
        blocks = self.data[1]
        x = te.placeholder((*self.data, self.lanes), name="x")
        w = te.placeholder((blocks, *self.filters, self.lanes), name="w")
        out = depthwise(x, w, self.strides, self.pads, self.dilation)
        bias = (1, blocks, 1, 1, self.lanes)
        return from_te(x, w, *FOLLOWING[self.following].after(out, bias, lambda i: (0, i[1], 0, 0, i[4])))

    def expected(self, x: Array, w: Array, *operands: Array) -> Array:
        seen = windows(padded(x.astype(np.float64), self.pads), self.filters, self.strides, self.dilation)
        out = np.einsum("nchwbyx,cyxb->nchwb", seen, w.astype(np.float64))
        return FOLLOWING[self.following].expected(out, operands)


@dataclass(frozen=True)
class Convolution:
    """One convolution, and what follows it."""

    data: Shape
    weight: Shape
    strides: tuple[int, int] = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    following: str = "bias"

    def program(self) -> tirx.PrimFunc:
        x, w = te.placeholder(self.data, name="x"), te.placeholder(self.weight, name="w")
        out = conv2d(x, w, Window(self.weight[2:4], self.strides, self.pads, self.dilation), self.groups)
        bias = (1, self.weight[0], 1, 1, self.weight[5])
        return from_te(x, w, *FOLLOWING[self.following].after(out, bias, lambda i: (0, i[1], 0, 0, i[4])))

    def expected(self, x: Array, w: Array, *operands: Array) -> Array:
        blocked = (x[..., None] if x.ndim == 4 else x).astype(np.float64)
        seen = windows(padded(blocked, self.pads), (w.shape[2], w.shape[3]), self.strides, self.dilation)
        n, _, oh, ow = seen.shape[:4]
        channels = seen.transpose(0, 1, 4, 2, 3, 5, 6).reshape(n, self.groups, -1, w.shape[4], oh, ow, *seen.shape[5:])
        filters = w.reshape(self.groups, -1, *w.shape[1:]).astype(np.float64)
        out = np.einsum("ngcihwyx,gocyxib->ngohwb", channels, filters, optimize=True)
        return FOLLOWING[self.following].expected(out.reshape(n, w.shape[0], oh, ow, w.shape[5]), operands)


def check(
    case: Case, configs: Sequence[Config], compiled: int, target: Target = TARGET, near: dict[int, float] | None = None
) -> None:
    """Every config near NumPy's numbers, some of them nearer to the compiler's kernel.

    Args:
        compiled: how many configs are compared with the compiler's kernel too.
        near: algorithm → how far both may be off, in parts of the largest number.
    """
    func = case.program()
    arrays_in, shape = numbers(func, scale=0.5), shapes(func)[-1]
    right = case.expected(*arrays_in)
    for number, config in enumerate(configs):
        arrays, text = repacked(func, config, arrays_in), text_of(func, config, target=target)
        result = run_watched(text, arrays, shape, threads=1 + number % 3)
        far, apart = (1e-5, 1e-6) if near is None else (near[config.integer("algorithm")],) * 2
        exact = near is None and case.following in EXACT_STEPS
        assert exact or is_near(result, right, far), config.to_json()
        if number < compiled:
            assert is_near(result, run(func, config, target, arrays_in), apart), config.to_json()
            assert np.array_equal(run_by_tvm(text, arrays, shape, threads=2 - number % 2), result), config.to_json()


def check_thousands_of_calls(case: Case, **fixed: int) -> None:
    """Nothing is left on stacks, and workspaces come back."""
    func = case.program()
    arrays = numbers(func)
    for pad in (0, 1):
        text = text_of(func, covering(func, 1, pad=pad, **fixed)[0])
        result = run_by_tvm(text, arrays, shapes(func)[-1], calls=3000)
        assert is_near(result, case.expected(*arrays), 1e-5)


def choices(cases: Iterable[Case], most: int, target: Target = TARGET, **fixed: int) -> dict[str, set[int]]:
    """Knob → its values in ``most`` configs of each case."""
    seen: dict[str, set[int]] = {}
    for case in cases:
        for config in covering(case.program(), most, target=target, **fixed):
            for knob, value in config.items:
                seen.setdefault(knob, set()).add(int(value))
    return seen


def is_left(func: tirx.PrimFunc, **fixed: int) -> bool:
    """Whether the compiler makes the first config's kernel."""
    return assembly(func, covering(func, 1, **fixed)[0], TARGET, "k") == ""
