"""AMX instructions as functions in LLVM's language."""

from __future__ import annotations

import re

import pytest

from schedules.templates.amx.amx_ir import MOST_SUMS, definitions


def test_the_shapes_are_what_the_processor_loads() -> None:
    (text,) = [text for text in definitions(["tune_amx_begin_13"]) if "_shapes" in text]
    shapes = [int(byte) for byte in re.findall(r"i8 (\d+)", text.partition("]")[2].partition("]")[0])]
    assert len(shapes) == 64
    assert shapes[0] == 1
    assert shapes[16:32] == [64, 0] * 8
    assert shapes[48:56] == [13] * 6 + [16] * 2
    assert not any(shapes[1:16] + shapes[32:48] + shapes[56:])


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 4), (2, 2), (4, 1), (3, 1)])
def test_every_pair_of_tiles_is_multiplied_once(rows: int, columns: int) -> None:
    text = definitions([f"tune_amx_add_bf16_{rows}x{columns}"])[-1]
    products = re.findall(r"tdpbf16ps\(i8 (\d), i8 (\d), i8 (\d)\)", text)
    assert sorted(int(tile) for tile, _, _ in products) == list(range(rows * columns))
    assert rows * columns <= MOST_SUMS
    loads = re.findall(r"tileloadd64\(i8 (\d)", text)
    assert len(loads) == rows + columns, "an operand is loaded once"
    assert set(loads) <= set("4567")


def test_only_what_is_called_is_defined() -> None:
    assert definitions(["printf", "tune_dot_bf16_vdpbf16ps_16"]) == []
    text = "\n".join(definitions(["tune_amx_zero_2x2", "tune_amx_zero_2x2", "tune_amx_end"]))
    assert text.count("define") == 2
