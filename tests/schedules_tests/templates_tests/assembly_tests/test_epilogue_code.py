"""What follows a product: which stages are one program of elements, where operands are read, how sums make way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import te, tirx

from schedules.templates.assembly.assembly_text import AssemblyText
from schedules.templates.assembly.epilogue_code import POINTERS, SCRATCH_BYTES, Epilogue, read_epilogue
from schedules.templates.assembly.tile_sums import SumLoop, TileSums
from schedules.templates.assembly.vectors import AVX512, OutOfScope
from schedules.templates.common.structure import Anchor, find_anchor
from schedules.templates.common.windows import Window
from schedules.templates.cpu.conv2d import conv2d
from schedules.templates.cpu.matmul import matmul
from tests.schedules_tests.programs import Shape, from_te
from tests.schedules_tests.templates_tests.assembly_tests.assembled import lines_of
from tests.schedules_tests.templates_tests.assembly_tests.epilogues import FOLLOWING

SHAPE: Shape = (2, 3, 4, 5, 16)


def convolution(
    after: Callable[..., list[te.Tensor]], batch: int = 2, dtype: str = "float32"
) -> tuple[tirx.PrimFunc, Anchor]:
    """1x1, 2 → 3 blocks, 4 × 5; ``after`` makes further tensors of its result, the last one the function's."""
    x, w = te.placeholder((batch, 2, 4, 5, 16), dtype, name="x"), te.placeholder((3, 2, 1, 1, 16, 16), dtype, name="w")
    out = conv2d(x, w, Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1)))
    func = from_te(x, w, *after(out))
    anchor = find_anchor(func, "conv2d")
    assert anchor is not None
    return func, anchor


def following(name: str) -> tuple[tirx.PrimFunc, Anchor]:
    return convolution(lambda out: FOLLOWING[name].after(out, (1, 3, 1, 1, 16), lambda i: (0, i[1], 0, 0, i[4])))


def one_stage(expression: Callable[..., tirx.Expr], *shapes: Shape, batch: int = 2) -> tuple[tirx.PrimFunc, Anchor]:
    def after(out: te.Tensor) -> list[te.Tensor]:
        others = [te.placeholder(shape, name=f"t{number}") for number, shape in enumerate(shapes)]
        return [*others, te.compute(out.shape, lambda *i: expression(out, *others, *i), name="last")]

    return convolution(after, batch)


def names_of(func: tirx.PrimFunc, anchor: Anchor) -> list[str]:
    return [value.name for value in read_epilogue(func, anchor.block, anchor.epilogue).values]


def test_stages_are_one_program() -> None:
    assert names_of(*following("none")) == ["sum"]
    assert names_of(*following("bias")) == ["sum", "operand", "add"]
    assert names_of(*following("residual")) == ["sum", "constant", "operand", "add", "operand", "add", "max"]
    assert names_of(*following("relu6")) == ["sum", "constant", "constant", "operand", "add", "max", "min"]


def test_stages_before_the_product_that_it_does_not_read_are_part_of_it() -> None:
    """As a residual that is scaled first."""

    def after(out: te.Tensor) -> list[te.Tensor]:
        residual = te.placeholder(SHAPE, name="residual")
        scaled = te.compute(SHAPE, lambda *i: residual(*i) * tirx.const(0.5, "float32"), name="scaled")
        return [residual, te.compute(SHAPE, lambda *i: scaled(*i) + out(*i), name="joined")]

    func, anchor = convolution(after)
    assert names_of(func, anchor) == ["sum", "operand", "constant", "mul", "add"]


def test_operands_are_read_where_they_lie() -> None:
    """A residual at the result's place, a number of each channel by the block's number, one for all by neither."""
    expected = {
        SHAPE: ["mov rax, r14", "add rax, [r11+16]"],
        (1, 3, 1, 1, 16): ["imul rax, r13, 64", "add rax, [r11+16]"],
        (1, 1, 1, 1, 16): ["imul rax, r13, 0", "add rax, [r11+16]"],
    }
    for shape, lines in expected.items():
        at = [0 if size == 1 else None for size in shape]
        func, anchor = one_stage(
            lambda out, t, *i, at=at: out(*i) + t(*(i[k] if a is None else a for k, a in enumerate(at))), shape
        )
        code = AssemblyText("k")
        epilogue = Epilogue(func, anchor)
        epilogue.begin(code)
        assert lines_of(code.text())[2:][: len(lines)] == lines
        epilogue.store(code, 5, range(6, 9), block=2, place=640)
        place = {SHAPE: 640, (1, 3, 1, 1, 16): 128, (1, 1, 1, 1, 16): 0}[shape]
        assert f"vaddps zmm5, zmm5, [rax+{place}]" in lines_of(code.text())
        assert "vmovups [rdi+640], zmm5" in lines_of(code.text())


def test_operands_of_a_product_are_read_by_column() -> None:
    x, w, bias = (te.placeholder(shape, name=name) for name, shape in (("x", (6, 8)), ("w", (3, 8, 16)), ("b", (48,))))
    out = matmul(x, w)
    func = from_te(x, w, bias, te.compute(out.shape, lambda m, n: out[m, n] + bias[n], name="added"))
    anchor = find_anchor(func, "matmul")
    assert anchor is not None
    code, epilogue = AssemblyText("k"), Epilogue(func, anchor)
    epilogue.begin(code)
    epilogue.store(code, 0, range(1, 4), block=1, place=256)
    assert "imul rax, r13, 64" in lines_of(code.text())
    assert "vaddps zmm0, zmm0, [rax+64]" in lines_of(code.text())


def test_registers_beside_the_sum() -> None:
    """As few as the fewest with which it can be written."""
    counts = {name: Epilogue(*following(name)).registers for name in FOLLOWING}
    assert counts["none"] == counts["bias"] == 0
    assert counts["residual"] == counts["relu6"] == 1
    assert 0 < counts["hard swish"] <= 2
    assert all(counts[name] <= 4 for name in FOLLOWING if name != "crowded")
    assert 7 <= counts["crowded"] < AVX512.count


def tile_text(name: str, panels: int, numbers: int) -> str:
    code = AssemblyText("k")
    tile = TileSums(tuple(range(numbers)), tuple(range(panels)), (SumLoop(1, 4),), 1)
    Epilogue(*following(name)).finish(code, tile, [[64 * number for number in range(numbers)]] * panels, 64)
    return "\n".join(lines_of(code.text()))


def test_constants_that_come_first_are_loaded_once_for_a_tile() -> None:
    """As many as there are registers for; the next ones by every vector."""
    text = tile_text("relu6", 1, 4)
    assert text.count("vbroadcastss") == 2
    assert text.count("vmaxps") == text.count("vminps") == 4
    assert tile_text("relu6", 1, 31).count("vbroadcastss") == 62
    assert tile_text("residual", 1, 31).count("vbroadcastss") == 1


def test_sums_make_way_where_registers_do_not_suffice() -> None:
    """Then all lie on the stack, each in a place of its own, and come back one by one."""
    assert "[rsp+" not in tile_text("crowded", 1, 4)
    crowded = tile_text("crowded", 1, 28)
    for register in range(28):
        place = f"[rsp+{64 + 64 * register}]"
        assert f"vmovaps {place}, zmm{register}\n" in crowded
        assert f"vmovaps zmm0, {place}" in crowded
    assert SCRATCH_BYTES >= 28 * 64
    assert "[rsp+" not in tile_text("bias", 1, 28)


OUT_OF_SCOPE: dict[str, Callable[[], tuple[tirx.PrimFunc, Anchor]]] = {
    "a tensor with one number for a row": lambda: one_stage(
        lambda out, t, n, o, h, w, b: out[n, o, h, w, b] + t[0, 0, h, 0, b], (1, 1, 4, 1, 16)
    ),
    "more tensors than pointers": lambda: one_stage(
        lambda out, *rest: sum((t(*rest[6:]) for t in rest[:6]), out(*rest[6:])), *[SHAPE] * (len(POINTERS) + 1)
    ),
    "one number for all lanes": lambda: one_stage(
        lambda out, t, n, o, h, w, b: out[n, o, h, w, b] + t[n, o, h, w, 0], (*SHAPE[:4], 1)
    ),
    "an element of another place": lambda: one_stage(lambda out, n, o, h, w, b: out[n, o, h, 4 - w, b]),
    "a result of another shape": lambda: convolution(
        lambda out: [te.compute((2, 3, 4, 4, 16), lambda *i: out(*i), name="crop")]
    ),
    "is no plain element": lambda: convolution(
        lambda out: [
            te.compute(
                (2, 3, 4, 1, 16),
                lambda n, o, h, w, b: te.sum(out[n, o, h, AXIS, b], axis=[AXIS]),
                name="total",
            )
        ]
    ),
    "a product of other numbers": lambda: convolution(lambda out: [out], dtype="float64"),
    "int8 becomes float32": lambda: one_stage(lambda out, *i: out(*i).astype("int8").astype("float32")),
    "more results than one": lambda: convolution(two_results),
    "2 GiB": lambda: convolution(lambda out: [out], batch=2**20),
}
AXIS = te.reduce_axis((0, 5), "axis")


def two_results(out: te.Tensor) -> list[te.Tensor]:
    """The sums themselves, and what follows; the sums come last."""
    last = te.compute(SHAPE, lambda *i: out(*i) + out(*i), name="last")
    return [last, out]


@pytest.mark.parametrize("reason", OUT_OF_SCOPE)
def test_what_is_left_to_the_compiler(reason: str) -> None:
    func, anchor = OUT_OF_SCOPE[reason]()
    with pytest.raises(OutOfScope, match=reason):
        Epilogue(func, anchor)
