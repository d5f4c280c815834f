"""Products by weights of 4 and 8 bits, and rows gathered from them, which stay packed.

What quantisers write becomes ``LowBitMatMul`` and ``LowBitGather`` of our own domain: activations or indices, levels,
scales, and zero points or none. Attributes say how the levels lie in memory (``low_bit_packing``). A product becomes a
call of ``PRODUCT`` in Relax, whose rule (``low_bit_layouts``) packs the weight for the target's kernels.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from onnx import TensorProto
from tvm import relax, te, tirx
from tvm.ir import StringImm

from autotune.importer.low_bits.low_bit_packing import Array, LowBits, unpacked
from autotune.importer.onnx_model.shapes import MICROSOFT, OWN_DOMAIN
from autotune.importer.rewriting.emit import FLOAT, Emit, Node
from autotune.importer.rewriting.registry import Inputs, converts, rewrites
from autotune.importer.rewriting.relax_values import sizes_of
from schedules.vocabulary.errors import ModelError

PRODUCT, GATHER = "tune.low_bit_matmul", "tune.low_bit_gather"
"""Names that a product and rows of a table have in Relax until layouts are assigned."""

INT8_ACTIVATIONS = 4
"""The ``accuracy_level`` of MatMulNBits that allows activations in int8."""

SMALLEST_GROUP = 16

_FP4 = (0.0, 5.208333333e-03, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25)
_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
BNB4 = (*_FP4, *(-number for number in _FP4)), _NF4
"""Numbers of bitsandbytes' formats FP4 and NF4, by ``quant_type`` of MatMulBnb4. NF4 is of Dettmers et al., QLoRA."""


@rewrites("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(node: Node, e: Emit) -> list[str] | None:
    """A (…, K) times the transpose of B (N, K), whose elements of 2, 4 or 8 bits are scaled in blocks along K.

    Constant weights of 4 or 8 bits stay packed; others, and those with zero points that are no integers, are made
    floating point at import, and the product costs what one of that type costs.
    """
    bits, block = int(node.attr("bits", 4)), int(node.attr("block_size", 0))
    depth, columns, kind = int(node.attr("K", 0)), int(node.attr("N", 0)), node.type(2)
    if bits not in (2, 4, 8) or block < SMALLEST_GROUP or depth < 1 or columns < 1:
        raise node.refused(f"its bits {bits}, block_size {block}, K {depth} and N {columns} do not describe weights")
    if node.input(4):
        raise node.refused("its input g_idx, which gives rows to groups, is not supported; quantise without act-order")
    constant = all(not name or name in e.scope.given for name in map(node.input, (1, 2, 3)))
    packed = not node.input(3) or node.type(3) == TensorProto.UINT8
    if not constant or not packed or bits == 2 or len(node.shape(0)) < 2:
        product = e.op("MatMul", node.input(0), e.transpose(_floats(node, e, bits, block), 1, 0))
    else:
        numbers = {"bits": bits, "group": block, "depth": depth, "columns": columns, "order": "nk"}
        level = int(node.attr("accuracy_level", 0)) == INT8_ACTIVATIONS
        inputs = [name for name in map(node.input, (0, 1, 2, 3)) if name]
        product = e.op("LowBitMatMul", *inputs, domain=OWN_DOMAIN, int8=int(level), **numbers)
        e.declare(product, [*node.shape(0)[:-1], columns], node.type(0) or kind)
    return [e.op("Add", product, node.input(5)) if node.input(5) else product]


def _floats(node: Node, e: Emit, bits: int, block: int) -> str:
    """The weights of a MatMulNBits as (N, K) of the type of their scales."""
    depth, columns, kind = int(node.attr("K", 0)), int(node.attr("N", 0)), node.type(2)
    blocks = -(-depth // block)
    values = _unpacked(e, node.input(1), (columns, blocks, block * bits // 8), bits)
    values = e.cast(e.reshape(values, columns, blocks, block), kind)
    if not node.input(3):
        zero = e.const(np.array(1 << (bits - 1)).astype(node.dtype(2)))
    elif node.type(3) == TensorProto.UINT8:  # packed, each row from a whole byte on
        zero = _unpacked(e, node.input(3), (columns, -(-blocks * bits // 8)), bits)
        zero = e.cast(e.reshape(e.slice(zero, 1, 0, blocks), columns, blocks, 1), kind)
    else:
        zero = e.reshape(node.input(3), columns, blocks, 1)
    weights = e.op("Mul", e.op("Sub", values, zero), e.reshape(node.input(2), columns, blocks, 1))
    return e.slice(e.reshape(weights, columns, blocks * block), 1, 0, depth)


def _unpacked(e: Emit, name: str, shape: tuple[int, ...], bits: int) -> str:
    """Bytes of ``shape`` as ``8 // bits`` times as many numbers along the last axis, the lowest bits first."""
    if bits == 8:
        return e.reshape(name, *shape)
    whole = e.reshape(name, *shape, 1)
    parts = []
    for low in range(0, 8, bits):
        shifted = e.op("BitShift", whole, e.const(np.uint8(low)), direction="RIGHT") if low else whole
        parts.append(e.op("Mod", shifted, e.const(np.uint8(1 << bits))) if low + bits < 8 else shifted)
    return e.reshape(e.concat(parts, len(shape)), *shape[:-1], shape[-1] * 8 // bits)


@rewrites("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(node: Node, e: Emit) -> list[str] | None:
    """A (…, K) times the transpose of B (N, K), whose elements name numbers of a table, scaled in blocks of all of B.

    The weights are made floating point at import.
    """
    depth, columns, block = (int(node.attr(name, 0)) for name in ("K", "N", "block_size"))
    kind = int(node.attr("quant_type", 1))
    if depth < 1 or columns < 1 or block < SMALLEST_GROUP or kind not in range(len(BNB4)) or not node.attr("transB", 1):
        words = f"its quant_type {kind}, block_size {block}, K {depth} and N {columns} do not describe weights"
        raise node.refused(f"{words} (N, K) in FP4 or NF4")
    count, table = depth * columns, np.array(BNB4[kind])
    whole = e.reshape(node.input(1), -1, 1)
    halves = [e.op("Div", whole, e.const(np.uint8(16))), e.op("Mod", whole, e.const(np.uint8(16)))]
    codes = e.slice(e.reshape(e.concat(halves, 1), -1), 0, 0, count)
    numbers = e.op("Gather", e.const(table.astype(node.dtype(2))), e.cast(codes, TensorProto.INT32), axis=0)
    scales = e.op("Expand", e.reshape(node.input(2), -1, 1), e.ints(-(-count // block), block))
    weights = e.op("Mul", numbers, e.slice(e.reshape(scales, -1), 0, 0, count))
    return [e.op("MatMul", node.input(0), e.transpose(e.reshape(weights, columns, depth), 1, 0))]


@rewrites("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(node: Node, e: Emit) -> list[str] | None:
    """Rows of a constant table (…, width), quantised in blocks along its last axis."""
    shape, kind = node.shape(0), node.type(0)
    bits = 4 if kind in (TensorProto.INT4, TensorProto.UINT4) else int(node.attr("bits", 4))
    rank, packed = len(shape), kind == TensorProto.UINT8 and bits == 4
    gathered, quantised = (int(node.attr(name, low)) % rank for name, low in (("gather_axis", 0), ("quantize_axis", 1)))
    if rank != 2 or gathered != 0 or quantised != 1 or bits not in (4, 8):
        raise node.refused("only rows of a table of two axes, of 4 or 8 bits along its rows, are gathered")
    if any(name and name not in e.scope.given for name in map(node.input, (0, 2, 3))):
        raise node.refused("its table is computed from the inputs; it must be a constant")
    width = shape[1] * (2 if packed else 1)
    numbers = {"bits": bits, "group": int(node.attr("block_size", 128)), "depth": width, "columns": shape[0]}
    return [gathered_rows(e, node.shape(1), [node.input(at) for at in (0, 1, 2, 3)], numbers, node.type(2))]


def gathered_rows(e: Emit, places: tuple[int, ...], inputs: list[str], numbers: dict[str, int], kind: int) -> str:
    """``LowBitGather`` of the table, indices, scales and zero points ("" for none) ``inputs``."""
    table, indices, scale, zero = inputs
    signed = e.scope.types.get(table) in (TensorProto.INT4, TensorProto.INT8)
    operands = [indices, table, scale, *([zero] if zero else [])]
    result = e.op("LowBitGather", *operands, domain=OWN_DOMAIN, order="nk", signed=int(signed), **numbers)
    e.declare(result, [*places, numbers["depth"]], kind or FLOAT)
    return result


@converts("LowBitMatMul")
def low_bit_matmul(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """A call of ``PRODUCT`` with the constants as the model has them."""
    return _call(PRODUCT, inputs, attrs, [*sizes_of(inputs[0])[:-1], int(attrs["columns"])])


@converts("LowBitGather")
def low_bit_gather(bb: relax.BlockBuilder, inputs: Inputs, attrs: dict[str, Any], opset: int) -> relax.Expr:
    """A call of ``GATHER`` with the constants as the model has them."""
    return _call(GATHER, inputs, attrs, [*sizes_of(inputs[0]), int(attrs["depth"])])


def _call(name: str, inputs: Inputs, attrs: dict[str, Any], shape: list[int]) -> relax.Expr:
    names = ("bits", "group", "depth", "columns", "parts", "order", "signed", "int8")
    values = {key: attrs[key] for key in names if key in attrs}
    plain = {key: value.decode() if isinstance(value, bytes) else value for key, value in values.items()}
    plain = {key: [int(number) for number in value] if key == "parts" else value for key, value in plain.items()}
    operands = [operand for operand in inputs if operand is not None]
    described = StringImm(json.dumps(plain))
    return relax.op.call_pure_packed(name, *operands, described, ty_args=relax.TensorType(shape, "float32"))


def gathered(indices: te.Tensor, levels: te.Tensor, scale: te.Tensor, zero: te.Tensor | None, bits: int) -> te.Tensor:
    """Rows of a table, each number unpacked and scaled as it is read.

    Args:
        levels: (rows, width · bits / 8), unsigned.
        scale, zero: (rows, groups); without zero points half of the range.
    """
    rows, per_byte = int(levels.shape[0]), 8 // bits
    width = int(levels.shape[1]) * per_byte
    group = width // int(scale.shape[1])

    def number(*at: tirx.Var) -> tirx.Expr:
        place, k = indices(*at[:-1]), at[-1]
        zero_th, last, count = (tirx.const(value, str(indices.dtype)) for value in (0, rows - 1, rows))
        row = tirx.Select(place < zero_th, place + count, place)
        row = tirx.max(tirx.min(row, last), zero_th)  # as ``moving.gather``: a place outside would read any memory
        level = levels[row, k // per_byte]
        if bits == 4:
            level = tirx.Select(k % 2 == 0, level & tirx.const(15, "uint8"), level >> tirx.const(4, "uint8"))
        point = tirx.const(float(1 << (bits - 1)), "float32") if zero is None else zero[row, k // group]
        point = point if zero is None else point.astype("float32")
        return (level.astype("float32") - point) * scale[row, k // group]

    return te.compute((*indices.shape, width), number, name="gathered")


def low_bits(geometry: dict[str, Any], arrays: list[Array | None]) -> LowBits:
    """The weight that a model's bytes, scales and zero points are, its depth padded to whole groups.

    Raises:
        ModelError: if the bytes are not as many as the weight's size asks for.
    """
    levels, scale, zero = arrays
    assert levels is not None
    assert scale is not None
    bits, group, depth, columns = (int(geometry[name]) for name in ("bits", "group", "depth", "columns"))
    order, signed = str(geometry["order"]), bool(geometry.get("signed", 0))
    groups = -(-depth // group)
    levels = levels.view(np.uint8)
    if order == "kn":
        scale = scale.reshape(groups, columns).T
        zero = None if zero is None else _zero_points(zero, (groups, columns), bits).T
    else:
        scale = scale.reshape(columns, groups)
        padded = zero is not None and bits == 4 and zero.size == columns * -(-groups // 2) and groups % 2
        shape = (columns, groups + 1 if padded else groups)
        zero = None if zero is None else _zero_points(zero, shape, bits)[:, :groups]
    if signed and zero is not None:
        zero = zero ^ np.uint8(1 << (bits - 1))
    whole = groups * group
    if order == "nk" and levels.size * 8 == columns * depth * bits and whole != depth:
        rows = np.pad(levels.reshape(columns, -1), ((0, 0), (0, (whole - depth) * bits // 8)))
        levels = rows.reshape(-1)
    elif order == "kn" and whole != depth:
        levels = np.pad(levels.reshape(-1), (0, (whole - depth) * columns * bits // 8 + 1))
    if levels.size * 8 < columns * whole * bits:
        raise ModelError(f"its {levels.size} bytes are no {depth} × {columns} numbers of {bits} bits; export it again")
    return LowBits(bits, group, whole, columns, order, levels, np.asarray(scale, np.float32), zero, signed)


def _zero_points(zero: Array, shape: tuple[int, int], bits: int) -> Array:
    """Zero points as the model packs them, as uint8 of ``shape``."""
    flat = zero.view(np.uint8).reshape(-1)
    return unpacked(flat, bits)[: shape[0] * shape[1]].reshape(shape)
