"""Programs of elements: read from TVM's programs, products fused, and written for as few registers as there are."""

from __future__ import annotations

import ctypes
import operator
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

from autotune.host.dtypes import numpy_type
from schedules.lower import tvm_target
from schedules.templates.assembly.assembly_text import AssemblyText
from schedules.templates.assembly.element_writer import Writer
from schedules.templates.assembly.elements import REACH, Elements, Operand, Value, check_reach
from schedules.templates.assembly.vectors import OutOfScope
from schedules.templates.common.structure import blocks_in_order
from schedules.templates.common.vector_math import vector_math
from schedules.templates.cpu.passes import compiled
from schedules.templates.instructions.kept_nan import nan_kept
from tests.schedules_tests.programs import Array, from_te
from tests.schedules_tests.templates_tests.assembly_tests.assembled import (
    TARGET,
    assembled,
    function_of,
    lines_of,
    linked,
    runs_here,
)

LANES, ENOUGH = 16, 31
POINTERS = ("rdx", "rcx", "r8", "r9")
OPERANDS = tuple(Operand(number, (1,), "float32") for number in range(len(POINTERS)))
PLACES = dict(zip(OPERANDS, POINTERS, strict=True))


def written(symbol: str, values: Sequence[Value], registers: int = ENOUGH) -> AssemblyText:
    """void symbol(result, sum, operands …) of vectors, with so many registers beside the sum."""
    code = AssemblyText(symbol)
    code.emit("vmovups zmm0, [rsi]")
    register = Writer(code, values, 0, range(1, 1 + registers), PLACES, {}).write()
    code.emit(f"vmovups [rdi], zmm{register}", "vzeroupper", "ret")
    return code


def text_of(symbols: dict[str, AssemblyText]) -> str:
    """One file of several such functions."""
    parts = []
    for symbol, code in symbols.items():
        text = function_of(symbol, code).replace(".L", f".L{symbol}_")
        parts.append(text[: text.index(".section	.bss")])
    return "".join(parts)


def loaded(symbols: dict[str, AssemblyText], folder: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(linked([assembled(text_of(symbols), folder / "e.o")], folder / "e.so")))


def called(library: ctypes.CDLL, symbol: str, total: Array, operands: Sequence[Array]) -> Array:
    result = np.full(LANES, np.nan, np.float32)
    arrays = [np.ascontiguousarray(array, np.float32) for array in (result, total, *operands)]
    getattr(library, symbol)(*[ctypes.c_void_p(array.ctypes.data) for array in arrays])
    return arrays[0]


# -- what is read ----------------------------------------------------------------------------------------------------


def program(expression: Callable[..., tirx.Expr], count: int = 2) -> tuple[tirx.PrimFunc, Elements]:
    """A function of ``count`` vectors, and its elements."""
    tensors = [te.placeholder((LANES,), name=f"x{number}") for number in range(count)]
    out = te.compute((LANES,), lambda i: expression(*[tensor[i] for tensor in tensors]), name="out")
    func = from_te(*tensors, out)
    block = blocks_in_order(vector_math(func))[0]
    elements = Elements(list(func.params))
    elements.read(nan_kept(block.body.value), [axis.var for axis in block.iter_vars])
    return func, elements


def by_tvm(func: tirx.PrimFunc) -> Callable[..., Array]:
    sch = s_tir.Schedule(vector_math(func))
    sch.vectorize(sch.get_loops("out")[0])
    module = compiled(sch.mod["main"], "main", tvm_target(TARGET))

    def run(*arrays: Array) -> Array:
        result = tvm.runtime.tensor(np.full(LANES, np.nan, np.float32))
        module(*map(tvm.runtime.tensor, arrays), result)
        return result.numpy()

    return run


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 3e38], np.float32)
FIRST = np.repeat(SPECIAL, len(SPECIAL)).reshape(-1, LANES)
SECOND = np.tile(SPECIAL, len(SPECIAL)).reshape(-1, LANES)
"""Every pair of these numbers."""


def constant(value: float) -> tirx.Expr:
    return tirx.const(value, "float32")


def chosen(compare: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]) -> Callable[..., tirx.Expr]:
    return lambda x, y: tirx.Select(compare(x, y), x + constant(1), y * constant(2))


EXPRESSIONS: dict[str, Callable[..., tirx.Expr]] = {
    **{name: chosen(getattr(operator, name)) for name in ("lt", "le", "gt", "ge")},
    "eq": chosen(lambda x, y: tirx.EQ(x, y)),
    "ne": chosen(lambda x, y: tirx.NE(x, y)),
    "max": lambda x, y: te.max(x, y),
    "min": lambda x, y: te.min(x, y),
    "clip": lambda x, y: te.min(te.max(x, constant(0)), constant(6)) + y,
    "least of constant": lambda x, y: te.max(constant(1), te.min(x, y)),
    "divide": lambda x, y: x / y - y / x,
    "round": lambda x, y: te.floor(x) + te.ceil(y) * te.trunc(x),
    "root": lambda x, y: te.sqrt(x) + y,
    "halves": lambda x, y: x.astype("bfloat16").astype("float32") * constant(3) + y,
    "short floats": lambda x, y: x.astype("float16").astype("float32") * constant(3) + y,
    "exp": lambda x, y: te.exp(x) + y,
    "log": lambda x, y: te.log(x) - y,
    "erf": lambda x, y: te.erf(x) * y,
    "tanh": lambda x, y: te.tanh(x) - te.tanh(y),
    "sigmoid": lambda x, y: x * te.sigmoid(y),
    "power": lambda x, y: te.power(x, y),
    "negative constants": lambda x, y: x * constant(-0.0) + y * constant(-1.5),
    "operand alone": lambda x, y: x,
    "constant alone": lambda x, y: constant(7),
}


@runs_here
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_numbers_of_every_kind_are_as_tvm_has_them(name: str, tmp_path: Path) -> None:
    func, elements = program(EXPRESSIONS[name])
    library = loaded({"f": written("f", elements.fused())}, tmp_path)
    operands = {value.parameter: PLACES[Operand(value.parameter, (1,), "float32")] for value in elements.operands()}
    assert set(operands) <= {0, 1}
    scheduled = by_tvm(func)
    for x, y in zip(FIRST, SECOND, strict=True):
        result, expected = called(library, "f", np.zeros(LANES), [x, y]), scheduled(x, y)
        np.testing.assert_allclose(result, expected, rtol=1e-6, err_msg=f"{x} {y}")
        zeros = expected == 0
        assert np.array_equal(np.signbit(result[zeros]), np.signbit(expected[zeros]))


OUT_OF_SCOPE: dict[str, tuple[Callable[..., tirx.Expr], str]] = {
    "long integers": (lambda x, y: x.astype("int64").astype("float32"), "float32 becomes int64"),
    "long floats": (lambda x, y: x.astype("float64").astype("float32") + y, "float32 becomes float64"),
    "integers that are compared": (
        lambda x, y: tirx.Select(x.astype("int32") > y.astype("int32"), x, y),
        "integers are compared",
    ),
    "two conditions": (lambda x, y: tirx.Select(tirx.all(x > y, y > constant(0)), x, y), "Select of float32"),
    "a call": (tirx.copysign, "a call of tirx.copysign"),
    "quotients of integers": (
        lambda x, y: tirx.div(x.astype("int32"), tirx.const(3, "int32")).astype("float32") + y,
        "Div of int32",
    ),
    "unsigned integers": (lambda x, y: x.astype("uint32").astype("float32") + y, "float32 becomes uint32"),
    "a shift by a vector": (
        lambda x, y: (x.astype("int32") << y.astype("int32")).astype("float32"),
        "LShift of int32",
    ),
}


@pytest.mark.parametrize("name", OUT_OF_SCOPE)
def test_what_has_no_instructions_is_told(name: str) -> None:
    expression, reason = OUT_OF_SCOPE[name]
    with pytest.raises(OutOfScope, match=reason):
        program(expression)


def loads(shape: tuple[int, ...], index: Callable[..., Sequence[object]]) -> Operand:
    """How an element (n, o, w, b) of a result (1, 3, 4, 16) reads a tensor of this shape."""
    tensor = te.placeholder(shape, name="x")
    out = te.compute((1, 3, 4, 16), lambda *i: tensor(*index(*i)), name="out")
    func = from_te(tensor, out)
    block = blocks_in_order(func)[0]
    elements = Elements(list(func.params))
    elements.read(block.body.value, [axis.var for axis in block.iter_vars])
    (operand,) = elements.operands()
    return operand


def test_strides_of_what_is_read() -> None:
    assert loads((1, 3, 4, 16), lambda n, o, w, b: (n, o, w, b)).strides == (0, 64, 16, 1)
    assert loads((1, 3, 1, 16), lambda n, o, w, b: (0, o, 0, b)).strides == (0, 16, 0, 1)
    assert loads((16,), lambda n, o, w, b: (b,)).strides == (0, 0, 0, 1)
    assert loads((3, 16), lambda n, o, w, b: (o, b)).strides == (0, 16, 0, 1)


@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((1, 3, 4, 16), lambda n, o, w, b: (n, 2 - o, w, b)),
        ((1, 3, 4, 16), lambda n, o, w, b: (n, 1, w, b)),
        ((1, 3, 4, 1), lambda n, o, w, b: (n, o, w, 0)),
        ((16, 3), lambda n, o, w, b: (b, o)),
        ((48,), lambda n, o, w, b: (o * 16 + b,)),
    ],
    ids=["reversed", "one of them", "one for all lanes", "lanes apart", "flat"],
)
def test_elements_of_other_places(shape: tuple[int, ...], index: Callable[..., Sequence[object]]) -> None:
    with pytest.raises(OutOfScope):
        loads(shape, index)


def test_equal_values_are_one() -> None:
    _, elements = program(lambda x, y: (x + y) * (x + y) + (x + y))
    assert [value.name for value in elements.values] == ["operand", "operand", "add", "mul", "add"]


def test_reach() -> None:
    check_reach(0, REACH)
    with pytest.raises(OutOfScope, match="2 GiB"):
        check_reach(4, REACH + 1)


# -- products that are fused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        (lambda x, y, z: x * y + z, ["fmadd"]),
        (lambda x, y, z: z + x * y, ["fmadd"]),
        (lambda x, y, z: x * y - z, ["fmsub"]),
        (lambda x, y, z: z - x * y, ["fnmadd"]),
        (lambda x, y, z: x * y + y * z, ["mul", "fmadd"]),
        (lambda x, y, z: x * y + x * y, ["mul", "add"]),
        (lambda x, y, z: te.max(x * y + z, x * y), ["mul", "add", "constant", "max", "select"]),
        (lambda x, y, z: x * y, ["mul"]),
        (lambda x, y, z: (x * y) / z, ["mul", "div"]),
    ],
)
def test_products_are_fused_where_one_sum_reads_them(expression: Callable[..., tirx.Expr], names: list[str]) -> None:
    _, elements = program(expression, 3)
    assert [value.name for value in elements.fused() if value.name not in ("operand", "gone")] == names


# -- what is written -------------------------------------------------------------------------------------------------

NUMPY: dict[str, Callable[..., Array]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "max": np.maximum,
    "min": np.minimum,
    "vrndscaleps": np.floor,
}


def random_elements(rng: np.random.Generator) -> Elements:
    """A graph in which values are read by none, one or several others; the last is the result."""
    elements = Elements([])
    known = [elements.add(Value("sum")), *(elements.add(Value("operand", operand=operand)) for operand in OPERANDS[:3])]
    constants = [int(np.float32(number).view(np.uint32)) for number in (-2.0, 1.0, 3.0)]
    known.extend(elements.add(Value("constant", bits=bits)) for bits in constants)
    while len(elements.values) < rng.integers(12, 40):
        name = str(rng.choice([*NUMPY, "add", "sub", "mul", "mul", "select"]))
        count = {"select": 4, "vrndscaleps": 1}.get(name, 2)
        # Mostly what is new, so that graphs are deep, and now and then what was long ago, so that it stays alive.
        of = [known[-1 - min(int(rng.exponential(4)), len(known) - 1)] for _ in range(count)]
        bits = {"select": int(rng.choice(list(COMPARISONS))), "vrndscaleps": 9}.get(name, 0)
        known.append(elements.add(Value(name, tuple(of), bits=bits)))
    return elements


COMPARISONS = {0: np.equal, 1: np.less, 2: np.less_equal, 12: np.not_equal, 13: np.greater_equal, 14: np.greater}


def evaluated(elements: Elements, total: Array, operands: Sequence[Array]) -> list[Array]:
    """Every value."""
    results: list[Array] = []
    for value in elements.values:
        of = [results[number] for number in value.of]
        if value.name == "sum":
            results.append(total)
        elif value.operand is not None:
            results.append(operands[value.operand.parameter])
        elif value.name == "constant":
            results.append(np.full(LANES, np.uint32(value.bits).view(np.float32), np.float64))
        elif value.name == "select":
            results.append(np.where(COMPARISONS[value.bits](of[0], of[1]), of[2], of[3]))
        else:
            results.append(NUMPY[value.name](*of))
    return results


def live(elements: Elements) -> Elements:
    """The graph without what its result does not need."""
    needed = {len(elements.values) - 1}
    for number in reversed(range(len(elements.values))):
        if number in needed:
            needed.update(elements.values[number].of)
    kept, places = Elements([]), {}
    for number, value in enumerate(elements.values):
        if number in needed:
            of = tuple(places[number_read] for number_read in value.of)
            places[number] = kept.add(Value(value.name, of, value.operand, value.bits))
    return kept


def fewest(values: Sequence[Value]) -> int:
    """Registers that a graph needs beside its sum."""
    for count in range(ENOUGH):
        try:
            written("f", values, count)
        except OutOfScope:
            continue
        return count
    raise AssertionError("no number of registers suffices")


@runs_here
def test_no_register_is_read_after_it_is_given_back(tmp_path: Path) -> None:
    """Hundreds of graphs of small whole numbers, each with as few registers as it can be written for."""
    rng = np.random.default_rng(0)
    whole = [rng.integers(-3, 4, LANES).astype(np.float64) for _ in range(1 + len(OPERANDS))]
    symbols, right, needs = {}, {}, []
    while len(symbols) < 400:
        elements = random_elements(rng)
        elements = live(elements) if rng.random() < 0.8 else elements
        values = evaluated(elements, whole[0], whole[1:])
        if max(np.abs(value).max() for value in values) > 2.0**23:
            continue  # no longer exact in float32
        symbol, needed = f"f{len(symbols)}", fewest(elements.fused())
        needs.append(needed)
        symbols[symbol], right[symbol] = written(symbol, elements.fused(), needed), values[-1]
    assert max(needs) > 5
    library = loaded(symbols, tmp_path)
    wrong = [name for name in symbols if not np.array_equal(called(library, name, whole[0], whole[1:]), right[name])]
    assert wrong == []


def test_too_few_registers() -> None:
    elements = Elements([])
    total, x = elements.add(Value("sum")), elements.add(Value("operand", operand=OPERANDS[0]))
    chain = [elements.add(Value("div", (total, x)))]
    for _ in range(5):
        chain.append(elements.add(Value("sub", (chain[-1], total))))
    last = chain[0]
    for number in reversed(chain[1:]):
        last = elements.add(Value("max", (last, number)))
    needed = fewest(elements.values)
    assert 5 <= needed <= 7
    with pytest.raises(OutOfScope, match="more intermediate results than registers"):
        written("f", elements.values, needed - 1)


def test_memory_is_read_by_the_instruction_that_needs_it() -> None:
    """No load stands alone but of what comes first and cannot be exchanged."""
    _, elements = program(lambda x, y: x + y * constant(3))
    lines = lines_of(written("f", elements.fused()).text())
    vectors = [line for line in lines if re.match(r"v(?!mov|zero)", line)]
    assert [line.split()[0] for line in vectors] == ["vbroadcastss", "vfmadd213ps"]


@runs_here
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "uint8", "int8", "int32"])
def test_operands_of_short_types_are_widened(dtype: str, tmp_path: Path) -> None:
    tensor, total = te.placeholder((LANES,), dtype, name="x"), te.placeholder((LANES,), name="total")
    out = te.compute((LANES,), lambda i: total[i] * constant(2) - tensor[i].astype("float32"), name="out")
    func = from_te(tensor, total, out)
    block = blocks_in_order(func)[0]
    elements = Elements(list(func.params))
    elements.known[func.params[1]] = elements.add(Value("sum"))
    elements.read(block.body.value, [axis.var for axis in block.iter_vars])
    (operand,) = elements.operands()
    assert (operand.parameter, operand.dtype) == (0, dtype)
    code = AssemblyText("f")
    code.emit("vmovups zmm0, [rsi]")
    register = Writer(code, elements.fused(), 0, range(1, 5), {operand: "rdx"}, {}).write()
    code.emit(f"vmovups [rdi], zmm{register}", "vzeroupper", "ret")
    numbers = np.arange(-7, LANES - 7).astype(numpy_type(dtype))
    start, result = np.linspace(-3, 3, LANES).astype(np.float32), np.zeros(LANES, np.float32)
    library = loaded({"f": code}, tmp_path)
    library.f(*[ctypes.c_void_p(array.ctypes.data) for array in (result, start, numbers)])
    np.testing.assert_allclose(result, start * 2 - numbers.astype(np.float32), rtol=1e-6)
