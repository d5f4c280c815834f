"""Products by weights of few bits in the layouts of each kind of target: ``for_vectors`` and ``for_floats``, rules."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, topi

from autotune.importer.layouts.packing import Shape
from autotune.importer.layouts.tensor_layouts import TensorLayouts, Value
from autotune.importer.low_bits.low_bit_operators import GATHER, PRODUCT, gathered, low_bits
from autotune.importer.low_bits.low_bit_packing import LowBits, pack_groups, pack_levels, pack_zeros
from schedules.templates.common.structure import divisors
from schedules.templates.cuda.cuda_computes import dense
from schedules.templates.instructions.dots import FORMS, DotForm
from schedules.templates.low_bit.low_bit_matmul import low_bit_matmul
from schedules.templates.low_bit.low_bit_panels import in_panels, low_bit_panels
from schedules.templates.low_bit.low_bit_tiles import in_tiles, low_bit_tiles

CALL = "relax.call_pure_packed"
"""Operation of the calls that the rules are for."""


FEWEST_TILE_ROWS, TILE_ROWS, MOST_TILE_ROWS = 6, 8, 28
"""Rows of the smallest tile that is fast, of a tile that always is, and of the largest tile. 197 rows of 3072 terms by
768 columns of 4 bits took 8.3 ms of a Zen 5 core in tiles of one row, and 4.2 ms as 200 rows."""


def for_vectors(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """A kernel on packed weights, all rows of x at once; or rows of a table."""
    return _rule(layouts, call, shape, _packed_product)


def for_floats(layouts: TensorLayouts, call: relax.Call, shape: Shape) -> Value | None:
    """Return the product with the weight as float32, for a target without kernels for packed weights."""
    return _rule(layouts, call, shape, _float_product)


Product = Callable[[TensorLayouts, Value, Sequence[LowBits], DotForm], relax.Expr]
"""(layouts, x, weights side by side, what is multiplied) → (rows, columns)."""


def _rule(layouts: TensorLayouts, call: relax.Call, shape: Shape, product: Product) -> Value | None:
    name = str(call.args[0].global_symbol)
    if name not in (PRODUCT, GATHER):
        return None
    first, *constants, described = call.args[1:]
    geometry = json.loads(str(described.value))
    arrays = [layouts.array(constant) for constant in constants]
    parts = geometry.get("parts") or [geometry["columns"]]
    per_part = len(arrays) // len(parts)
    weights = [
        low_bits({**geometry, "columns": columns}, [*arrays[i * per_part : (i + 1) * per_part], None][:3])
        for i, columns in enumerate(parts)
    ]
    if name == GATHER:
        return Value(shape, plain=_rows(layouts, layouts.plain_expr(first), weights[0]))
    value = layouts.value(first)
    if value is None:  # a constant, which is larger than what is folded
        value = Value(tuple(int(size) for size in first.ty.shape), plain=layouts.plain_expr(first))
    form = FORMS[f"{'s8' if geometry.get('int8') else 'f32'}u{weights[0].bits}"]
    out = product(layouts, value, weights, form)
    return Value(shape, plain=out) if len(shape) == 2 else Value(shape, matrix=out)


def _packed_product(layouts: TensorLayouts, value: Value, weights: Sequence[LowBits], form: DotForm) -> relax.Expr:
    lanes, matrix, missing = layouts.panel, layouts.matrix(value), weights[0].depth - value.shape[-1]
    kept, depth = [math.prod(value.shape[:-1]), sum(weight.columns for weight in weights)], weights[0].depth
    tiled = layouts.has_tiles and form.data == "int8" and in_tiles(kept[0], depth, lanes)
    product = low_bit_tiles if tiled else low_bit_panels if in_panels(kept[0], form) else low_bit_matmul
    rows = kept[0] if tiled else in_whole_tiles(kept[0])
    if missing or rows > kept[0]:
        matrix = layouts.builder.emit(relax.op.nn.pad(matrix, [0, rows - kept[0], 0, missing]))
    panels = [pack_levels(weight, lanes) for weight in weights]
    levels = panels[0] if len(panels) == 1 else np.concatenate(panels)
    arrays = [levels, pack_groups(np.concatenate([w.scale for w in weights]), lanes), pack_zeros(weights, lanes)]
    constants = [layouts.constant(array) for array in arrays if array is not None]

    def compute(x: Any, levels: Any, scale: Any, *zeros: Any) -> Any:
        return product(x, levels, scale, zeros[0] if zeros else None, form)

    out = layouts.emit_anchor("low_bit_matmul", compute, matrix, *constants)
    if kept[1] % lanes == 0 and kept[0] == rows:
        return out
    return layouts.builder.emit_te(lambda t: topi.strided_slice(t, [0, 0], kept), out, primfunc_name_hint="crop")


def in_whole_tiles(rows: int) -> int:
    """Return ``rows``, or the next multiple of ``TILE_ROWS`` if tiles of few rows alone divide many rows."""
    divided = rows <= MOST_TILE_ROWS or max(divisors(rows, MOST_TILE_ROWS)) >= FEWEST_TILE_ROWS
    return rows if divided else -(-rows // TILE_ROWS) * TILE_ROWS


def _float_product(layouts: TensorLayouts, value: Value, weights: Sequence[LowBits], _form: DotForm) -> relax.Expr:
    numbers = np.concatenate([weight.numbers()[: value.shape[-1]] for weight in weights], axis=1)
    return layouts.emit_anchor("dense", dense, layouts.matrix(value), layouts.constant(numbers))


def _rows(layouts: TensorLayouts, indices: relax.Expr, weight: LowBits) -> relax.Expr:
    half = 1 << (weight.bits - 1)
    flip = np.uint8((half | half << 4 if weight.bits == 4 else half) if weight.signed else 0)
    levels = weight.levels.reshape(weight.columns, -1) ^ flip
    is_plain = weight.zero is None or bool((weight.zero == half).all())
    arrays = [levels, weight.scale, *([] if is_plain or weight.zero is None else [weight.zero])]

    def compute(places: Any, data: Any, scale: Any, *zeros: Any) -> Any:
        return gathered(places, data, scale, zeros[0] if zeros else None, weight.bits)

    constants = [layouts.constant(array) for array in arrays]
    return layouts.builder.emit_te(compute, indices, *constants, primfunc_name_hint="low_bit_gather")
