"""Another algorithm in front of a kept epilogue: same parameters, same numbers, nothing of the old anchor left."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx

from schedules.templates.common.splice import replace_anchor
from schedules.templates.common.structure import blocks_in_order, parameter_shapes
from schedules.vocabulary.errors import ScheduleError
from tests.schedules_tests.programs import Array, from_te

ROWS, DEPTH, COLUMNS = 4, 6, 5
SHAPES = {"x": (ROWS, DEPTH), "w": (DEPTH, COLUMNS), "y": (ROWS, COLUMNS)}

Epilogue = Callable[[te.Tensor, te.Tensor, te.Tensor], te.Tensor]


def bare(x: te.Tensor, y: te.Tensor, out: te.Tensor) -> te.Tensor:
    return out


def biased(x: te.Tensor, y: te.Tensor, out: te.Tensor) -> te.Tensor:
    return te.compute(out.shape, lambda i, j: out[i, j] + y[i, j], name="added")


def chained(x: te.Tensor, y: te.Tensor, out: te.Tensor) -> te.Tensor:
    """Two blocks, and the data read once more behind the anchor."""
    added = te.compute(out.shape, lambda i, j: out[i, j] - y[i, j], name="added")
    return te.compute(out.shape, lambda i, j: added[i, j] * added[i, j] + x[i, 0], name="square")


def converted(x: te.Tensor, y: te.Tensor, out: te.Tensor) -> te.Tensor:
    """An addend that goes through two blocks, which stand before the anchor."""
    half = te.compute(out.shape, lambda i, j: y[i, j] / 2, name="half")
    less = te.compute(out.shape, lambda i, j: half[i, j] - 1, name="less")
    return te.compute(out.shape, lambda i, j: less[i, j] + out[i, j], name="added")


EXPECTED: dict[Epilogue, Callable[[Array, Array, Array], Array]] = {
    bare: lambda x, y, out: out,
    biased: lambda x, y, out: out + y,
    chained: lambda x, y, out: (out - y) ** 2 + x[:, :1],
    converted: lambda x, y, out: y / 2 - 1 + out,
}


def program(epilogue: Epilogue, order: str) -> tirx.PrimFunc:
    """doubled x (4, 6) @ w (6, 5), then ``epilogue``; parameters as ``order`` names them."""
    tensors = {name: te.placeholder(shape, name=name) for name, shape in SHAPES.items()}
    k = te.reduce_axis((0, DEPTH), "k")
    x = te.compute((ROWS, DEPTH), lambda i, j: tensors["x"][i, j] + tensors["x"][i, j], name="twice")
    out = te.compute((ROWS, COLUMNS), lambda i, j: te.sum(x[i, k] * tensors["w"][k, j], axis=k), name="product")
    return from_te(*(tensors[name] for name in order), epilogue(tensors["x"], tensors["y"], out))


def stages() -> tirx.PrimFunc:
    """The same product in two stages from a transposed weight (5, 6)."""
    shape = [tirx.IntImm("int64", size) for size in (ROWS, DEPTH, COLUMNS)]
    x, w = te.placeholder(shape[:2], name="x"), te.placeholder([shape[2], shape[1]], name="w")
    terms = te.compute(shape, lambda i, k, j: x[i, k] * w[j, k], name="terms")
    k = te.reduce_axis((tirx.IntImm("int64", 0), shape[1]), "k")
    out = te.compute([shape[0], shape[2]], lambda i, j: te.sum(terms[i, k, j], axis=k) * 1, name="total")
    return te.create_prim_func([x, w, te.compute(out.shape, lambda i, j: out[i, j] * 2.0, name="doubled")])


def names(func: tirx.PrimFunc) -> list[str]:
    return [block.name_hint for block in blocks_in_order(func)]


@pytest.mark.parametrize(
    ("epilogue", "order"),
    [
        (bare, "xw"),
        (bare, "wx"),
        (biased, "xwy"),
        (biased, "ywx"),
        (chained, "xwy"),
        (chained, "wyx"),
        (converted, "ywx"),
    ],
)
def test_the_anchor_is_replaced_and_the_rest_kept(epilogue: Epilogue, order: str) -> None:
    func = program(epilogue, order)
    before = func.script()
    joined = replace_anchor(func, "product", stages(), order.index("x"), order.index("w"))
    assert func.script() == before
    kept = names(func)[names(func).index("product") + 1 :]
    assert names(joined)[-len(kept) or None :] == (kept or names(stages()))
    assert not {"product", "twice"} & set(names(joined))
    rng = np.random.default_rng(0)
    by_name = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    arrays = [by_name[name].T.copy() if name == "w" else by_name[name] for name in order]
    assert parameter_shapes(joined) == (*(array.shape for array in arrays), (ROWS, COLUMNS))
    output = tvm.runtime.tensor(np.full((ROWS, COLUMNS), np.nan, np.float32))
    tvm.compile(joined, target="llvm")(*map(tvm.runtime.tensor, arrays), output)
    right = EXPECTED[epilogue](by_name["x"], by_name["y"], 2 * by_name["x"] @ by_name["w"])
    np.testing.assert_allclose(output.numpy(), right, rtol=1e-5, atol=1e-5)


def test_the_result_is_the_same_every_time_and_can_be_scheduled() -> None:
    first, second = (replace_anchor(program(chained, "xwy"), "product", stages(), 0, 1) for _ in range(2))
    assert tvm_ffi.structural_equal(first, second)
    schedule = s_tir.Schedule(first)
    schedule.compute_inline(schedule.get_sblock("terms"))
    schedule.parallel(schedule.get_loops(schedule.get_sblock("square"))[0])


def test_an_anchor_inside_other_loops_is_refused() -> None:
    schedule = s_tir.Schedule(program(biased, "xwy"))
    product, added = schedule.get_sblock("product"), schedule.get_sblock("added")
    schedule.compute_at(product, schedule.get_loops(added)[0])
    with pytest.raises(ScheduleError, match="product is not at the root"):
        replace_anchor(schedule.mod["main"], "product", stages(), 0, 1)
