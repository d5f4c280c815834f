"""Operators of integers at the ends of their types, casts out of range, and indices in and out of range.

A case is one node and its inputs. What is right is ONNX Runtime's answer, or ``want`` where ONNX Runtime has none or
another one: the exceptions of docs/correctness.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]

OPSET = 21
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
QUICK = ("int8", "int32", "int64", "uint8", "uint64")
"""Types of the normal suite."""


@dataclass(frozen=True)
class Case:
    """One node.

    Attributes:
        inputs: in order; None for one that is left out.
        constants: indices of the inputs that are constants of the model.
        want: outputs that are right, instead of ONNX Runtime's.
        before, after: element types that the first input and the output are cast to by nodes around it.
    """

    name: str
    kind: str
    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: Sequence[int] = ()
    outputs: int = 1
    want: Sequence[Array] | None = None
    before: int = 0
    after: int = 0
    domain: str = ""


def model_of(cases: Sequence[Case]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """All cases side by side in one model, and its inputs; outputs are in order."""
    nodes, inputs, names, constants, feed = [], [], [], [], {}
    for number, case in enumerate(cases):
        stem, names_read = f"case{number}", []
        for index, array in enumerate(case.inputs):
            name = f"{stem}/in{index}" if array is not None else ""
            names_read.append(name)
            if array is None:
                continue
            if index in case.constants:
                constants.append(numpy_helper.from_array(array, name))
            else:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
                feed[name] = array
        if case.before:
            nodes.append(helper.make_node("Cast", [names_read[0]], [f"{stem}/before"], to=case.before))
            names_read[0] = f"{stem}/before"
        outputs = [f"{stem}/out{index}" for index in range(case.outputs)]
        own = [f"{stem}/after"] if case.after else outputs
        nodes.append(helper.make_node(case.kind, names_read, own, stem, domain=case.domain, **case.attributes))
        if case.after:
            nodes.append(helper.make_node("Cast", own, outputs, to=case.after))
        names += outputs
    graph = helper.make_graph(nodes, "edges", inputs, [onnx.ValueInfoProto(name=name) for name in names], constants)
    domains = {case.domain for case in cases if case.domain}
    opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    inferred = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.output}
    for value in model.graph.output:
        value.CopyFrom(inferred[value.name])
    return model, feed


def ends(dtype: str) -> Array:
    """Numbers at the ends of an integer type and around zero."""
    info = np.iinfo(dtype)
    numbers = [info.min, info.min + 1, 0, 1, 2, 3, 5, 7, info.max - 1, info.max, info.max // 2]
    return np.array(numbers + ([-1, -2, -3, -7] if info.min else []), dtype)


def pairs(one: Array, other: Array) -> tuple[Array, Array]:
    """Every number of ``one`` with every number of ``other``."""
    left, right = np.meshgrid(one, other, indexing="ij")
    return left.reshape(-1).copy(), right.reshape(-1).copy()


def arithmetic(dtypes: Sequence[str]) -> Iterator[Case]:
    """Sums, products, comparisons, bits: everything wraps around."""
    for dtype in dtypes:
        x = ends(dtype)
        a, b = pairs(x, x)
        for kind in ("Add", "Sub", "Mul", "Max", "Min", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"):
            yield Case(f"{kind} {dtype}", kind, [a, b])
            if kind in ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Add", "Max"):
                for at, number in (("least", x.min()), ("greatest", x.max())):
                    yield Case(f"{kind} {dtype} {at}", kind, [x, np.array(number, dtype)], constants=(1,))
        for kind in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            yield Case(f"{kind} {dtype}", kind, [a, b])
        for kind in ("Abs", "Sign", "BitwiseNot", *(["Neg"] if dtype in SIGNED else [])):
            yield Case(f"{kind} {dtype}", kind, [x])
        yield Case(f"Clip {dtype}", "Clip", [x, np.array(2, dtype), np.array(100, dtype)], constants=(1, 2))
        yield Case(f"Clip of nothing {dtype}", "Clip", [x, np.array(100, dtype), np.array(2, dtype)])
        yield Case(f"Where {dtype}", "Where", [np.arange(x.size) % 2 == 0, x, x[::-1].copy()])
        if dtype in UNSIGNED:
            bits = 8 * x.itemsize
            a, b = pairs(x, np.array([0, 1, bits - 1], dtype))
            for way in ("LEFT", "RIGHT"):
                yield Case(f"BitShift {way} {dtype}", "BitShift", [a, b], {"direction": way})
                beyond = np.full(x.size, bits, dtype)
                yield Case(f"BitShift all {way} {dtype}", "BitShift", [x, beyond], {"direction": way}, want=[0 * x])


def folded(dtypes: Sequence[str]) -> Iterator[Case]:
    """The same of constants, which the importer computes."""
    for dtype in dtypes:
        x = ends(dtype)
        a, b = pairs(x, x)
        for kind in ("Add", "Sub", "Mul", "Max", "Less"):
            yield Case(f"{kind} {dtype}", kind, [a, b], constants=(0, 1))
        yield Case(f"Abs {dtype}", "Abs", [x], constants=(0,))
        safe = (b != 0) & ~overflows(a, b)
        for kind, attributes in DIVISIONS:
            if not (attributes.get("fmod") and dtype in ("int64", "uint64")):
                yield Case(f"{kind} {dtype}", kind, [a[safe], b[safe]], attributes, (0, 1))
            yield Case(f"{kind} {dtype} by 0", kind, [x, 0 * x], attributes, (0, 1), want=[0 * x])


DIVISIONS: tuple[tuple[str, dict[str, Any]], ...] = (("Div", {}), ("Mod", {"fmod": 0}), ("Mod", {"fmod": 1}))


def overflows(a: Array, b: Array) -> Array:
    """Where a ÷ b is the least integer by −1."""
    least = np.iinfo(a.dtype).min
    return np.zeros(a.shape, bool) if not least else (a == least) & (b == -1)


def division(dtypes: Sequence[str]) -> Iterator[Case]:
    """By everything; ONNX Runtime refuses to divide by 0 and dies of the least integer by −1."""
    for dtype in dtypes:
        x = ends(dtype)
        a, b = pairs(x, x)
        safe = (b != 0) & ~overflows(a, b)
        zeros = np.zeros_like(x)
        for kind, attributes in DIVISIONS:
            name = f"{kind}{attributes.get('fmod', '')} {dtype}"
            # ONNX Runtime computes this by way of doubles.
            exact = np.fmod(a, np.where(safe, b, 1)).astype(dtype) if attributes.get("fmod") else None
            wide = exact is not None and x.itemsize == np.dtype("int64").itemsize
            want = [exact[safe]] if wide and exact is not None else None
            yield Case(name, kind, [a[safe], b[safe]], attributes, want=want)
            yield Case(f"{name} by a vector", kind, [a[safe], b[safe]], attributes, (1,), want=want)
            yield Case(f"{name} by 0", kind, [x, zeros], attributes, want=[zeros])
            yield Case(f"{name} of 0", kind, [zeros, x], attributes, want=[zeros])
            want = [np.fmod(x, np.array(7, dtype))] if wide else None
            yield Case(f"{name} by 7", kind, [x, np.array(7, dtype)], attributes, (1,), want=want)
            if dtype in SIGNED:
                quotients = [-x if kind == "Div" else zeros]
                for constants in ((), (1,)):
                    by = np.array(-1, dtype)
                    yield Case(f"{name} by -1 {constants}", kind, [x, by], attributes, constants, want=quotients)


def reductions(dtypes: Sequence[str]) -> Iterator[Case]:
    """Sums wrap around; the order of extremes."""
    for dtype in dtypes:
        x = ends(dtype)
        rows, axis = np.stack([x, x[::-1]]), np.array([1])
        kinds = ["ReduceMax", "ReduceMin", *(["ReduceSum", "ReduceProd"] if dtype == "int32" else [])]
        for kind in kinds:
            yield Case(f"{kind} {dtype}", kind, [rows, axis], constants=(1,))
        for largest in (0, 1):
            taken = [x, np.array([5])]
            yield Case(f"TopK {largest} {dtype}", "TopK", taken, {"largest": largest}, (1,), outputs=2)
        for kind in ("ArgMax", "ArgMin"):
            yield Case(f"{kind} {dtype}", kind, [x], {"axis": 0})
        if dtype in ("int32", "int64"):
            small = np.array([[-7, 0, 2], [5, 1, 1]], dtype)
            for kind in ("ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare"):
                yield Case(f"{kind} {dtype}", kind, [small, axis], {"keepdims": 0}, (1,))
            yield Case(f"ReduceMean of all {dtype}", "ReduceMean", [small])
            yield Case(f"CumSum {dtype}", "CumSum", [x, np.array(0)], constants=(1,))
        if dtype in ("int32", "int64", "uint32", "uint64"):
            yield Case(f"MatMul {dtype}", "MatMul", [rows, x.reshape(-1, 1)])
    # ONNX Runtime adds up int64 as doubles.
    x = ends("int64")
    with np.errstate(over="ignore"):
        yield Case("ReduceSum int64", "ReduceSum", [x, np.array([0])], constants=(1,), want=[x.sum(keepdims=True)])
        squares = [(x.astype(np.int32) ** 2).sum(keepdims=True, dtype=np.int32)]
    yield Case("ReduceSumSquare int32", "ReduceSumSquare", [x.astype(np.int32), np.array([0])], {}, (1,), want=squares)


def powers(dtypes: Sequence[str]) -> Iterator[Case]:
    """Beyond the type, by negative exponents, and of negative bases."""
    for dtype in ("int32", "int64"):
        x = ends(dtype)
        yield Case(f"Pow {dtype}", "Pow", [*pairs(x, np.array([0, 1, 2, 3, 7, 63, -1, -2], dtype))])
        for exponent in (2.0, 3.0, 0.5, -1.0):
            power = np.array(exponent, np.float32)
            yield Case(f"Pow {exponent} {dtype}", "Pow", [x, power], constants=(1,))
            yield Case(f"Pow {exponent} {dtype} folded", "Pow", [x, power], constants=(0, 1))


FLOATS = np.array(
    [
        *(np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 0.9, -0.9, 1.5, -1.5, 127.9, 128, -128.9, -129, 255.9, 256),
        *(-1, -255, 257, 32767, 32768, -32769, 65504, 65536, -70000, 2147483520, 2.0**31, -(2.0**31), -2147483904),
        *(3e9, -3e9, 4294967040, 2.0**32, 5e9, 9.2e18, 2.0**63, -(2.0**63), 1e19, 1.8446742e19, 2.0**64, -1e19, 1e20),
        *(-1e20, 3e38, -3e38, 1e-40, 1e-3),
    ]
)
"""A multiple of 16 numbers: ONNX Runtime computes the last few of other lengths in another way."""
TYPES = {
    name: getattr(TensorProto, name.upper()) for name in (*SIGNED, *UNSIGNED, "bool", "float16", "float", "double")
}
SHORT_FLOATS = ("BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")


def casts(dtypes: Sequence[str]) -> Iterator[Case]:
    """Between all types; floats out of range, NaN and infinities among them."""
    with np.errstate(all="ignore"):
        sources: dict[str, Array] = {name: ends(name) for name in dtypes}
        sources |= {"float": FLOATS.astype(np.float32), "double": FLOATS, "float16": FLOATS.astype(np.float16)}
    sources["bool"] = np.array([True, False, True])
    for source, x in sources.items():
        for to, kind in TYPES.items():
            if to != source and (to in dtypes or to not in (*SIGNED, *UNSIGNED)):
                yield Case(f"Cast {source} {to}", "Cast", [x], {"to": kind})
        for short in SHORT_FLOATS:
            kind = getattr(TensorProto, short)
            yield Case(f"Cast {source} {short}", "Cast", [x], {"to": kind}, after=TensorProto.FLOAT)
        if x.dtype.kind in "iu":
            for short in ("INT4", "UINT4"):
                yield Case(
                    f"Cast {source} {short}", "Cast", [x], {"to": getattr(TensorProto, short)}, after=TYPES["int32"]
                )
    within = np.concatenate([np.linspace(-8, 7, 16), [0.9, -0.9, 1.5, -1.5]]).astype(np.float32)
    truncated = [np.trunc(within).astype(np.int32)]  # ONNX Runtime rounds
    yield Case("Cast float INT4", "Cast", [within], {"to": TensorProto.INT4}, after=TYPES["int32"], want=truncated)
    for short in ("FLOAT8E4M3FN", "FLOAT8E5M2FNUZ"):
        for to in ("int32", "int64", "int8"):
            x = np.array([np.nan, 1.5, -1.5, 300], np.float32)
            yield Case(f"Cast {short} {to}", "Cast", [x], {"to": TYPES[to]}, before=getattr(TensorProto, short))
    for to in ("UINT8", "INT8", "UINT16", "INT16"):
        zero = np.array(3, to.lower())
        quantised = [FLOATS[FLOATS == FLOATS].astype(np.float32), np.array(0.5, np.float32), zero]
        yield Case(f"QuantizeLinear {to}", "QuantizeLinear", quantised, constants=(1, 2))


BEYOND = (3, -4, 100, -100, 2**31 - 1, -(2**31))
FAR = (2**63 - 1, -(2**63), 2**32, -(2**40))


def held(places: Array, size: int) -> Array:
    """What out-of-range indices are read as: the nearest end, after negative ones are counted from the end."""
    wide = places.astype(object)
    return np.clip(np.where(wide < 0, wide + size, wide), 0, size - 1).astype(np.int64)


def indices(dtypes: Sequence[str]) -> Iterator[Case]:
    """In range as ONNX Runtime; out of range, where that gives an error, at the nearest end."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for kind in ("int32", "int64"):
        inside = np.array([0, -1, -3, 2], kind)
        outside = np.array([*BEYOND, *(FAR if kind == "int64" else ())], kind)
        for places, are_held in ((inside, False), (outside, True)):
            name, safe = f"{kind} {'outside' if are_held else 'inside'}", held(places, 3)
            yield Case(f"Gather {name}", "Gather", [x, places], want=[x[safe]] if are_held else None)
            wide, wide_safe = np.resize(places, (3, 4)), np.resize(safe, (3, 4))
            taken = [np.take_along_axis(x, wide_safe, 0)] if are_held else None
            yield Case(f"GatherElements {name}", "GatherElements", [x, wide], want=taken)
            single = np.array([[places[1], places[0], places[2], places[3]]], kind)
            put = x.copy()
            np.put_along_axis(put, held(single, 3), -np.ones((1, 4), np.float32), 0)
            update = [x, single, -np.ones((1, 4), np.float32)]
            yield Case(f"ScatterElements {name}", "ScatterElements", update, want=[put] if are_held else None)
            if kind == "int64":
                rows = places.reshape(-1, 1)
                yield Case(f"GatherND {name}", "GatherND", [x, rows], want=[x[safe]] if are_held else None)
                one = places[:1].reshape(1, 1)
                put = x.copy()
                put[held(one.reshape(-1), 3)] = -1
                update = [x, one, -np.ones((1, 4), np.float32)]
                yield Case(f"ScatterND {name}", "ScatterND", update, want=[put] if are_held else None)
                hot = [places, np.array(3), np.array([0, 1], np.float32)]
                yield Case(f"OneHot {name}", "OneHot", hot, constants=(1,))
    lengths = np.array([0, 1, 3, 2])
    yield Case("ReverseSequence", "ReverseSequence", [x, lengths], {"time_axis": 0, "batch_axis": 1})
    columns = np.array([[0, 3, 2]])
    yield Case("ArrayFeatureExtractor", "ArrayFeatureExtractor", [x, columns], domain="ai.onnx.ml")
    outside = np.array([[4, -5, 2**62]])
    want = [x[:, [3, 0, 3]]]
    yield Case("ArrayFeatureExtractor outside", "ArrayFeatureExtractor", [x, outside], want=want, domain="ai.onnx.ml")


FAMILIES = {
    "arithmetic": arithmetic,
    "folded": folded,
    "division": division,
    "reductions": reductions,
    "powers": powers,
    "casts": casts,
    "indices": indices,
}
