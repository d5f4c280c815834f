"""What the importer emits for a GPU: geometry of the gathers that templates read."""

from __future__ import annotations

from schedules.templates.common.structure import find_anchor
from schedules.templates.cuda.cuda_computes import GEMM
from tests.schedules_tests.templates_tests.cuda_tests.cases import PRODUCTS


def test_products_say_along_which_axes_their_operands_are_contiguous() -> None:
    anchors = {case.name: find_anchor(case.func, GEMM) for case in PRODUCTS}
    assert all(anchor is not None for anchor in anchors.values())
    geometry = {
        name: (anchor.geometry["rows"], anchor.geometry["columns"]) for name, anchor in anchors.items() if anchor
    }
    assert geometry["conv_3x3"] == geometry["dense_rows"] == ("k", "n")
    assert geometry["scores"] == ("k", "k")
    assert anchors["conv_grouped"].geometry["run"] == 4
