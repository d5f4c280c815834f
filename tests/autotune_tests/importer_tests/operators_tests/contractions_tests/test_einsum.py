"""Einstein sums are products of matrices where they can be, and right in every form."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

PRODUCTS = {
    "attention scores": ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    "attention of windows, with spaces": ("B G H I J, B G H J D -> B G H I D", [(1, 2, 3, 4, 5), (1, 2, 3, 5, 6)]),
    "several rows and columns": ("bnmd,hdk->bnmhk", [(2, 3, 2, 4), (5, 4, 6)]),
    "several axes summed": ("abcd,cde->abe", [(2, 3, 4, 5), (4, 5, 6)]),
    "no columns": ("bnd,d->bn", [(2, 3, 4), (4,)]),
    "neither": ("bd,bd->b", [(3, 4), (3, 4)]),
    "a number": ("ij,ij->", [(3, 4), (3, 4)]),
    "turned": ("ij,jk->ki", [(3, 4), (4, 5)]),
    "an axis of one operand alone": ("abx,bcy->ca", [(2, 3, 4), (3, 5, 2)]),
    "unnamed axes": ("...ij,...jk->...ik", [(2, 3, 4, 5), (2, 3, 5, 6)]),
    "unnamed axes of one operand": ("...ij,jk->...ik", [(2, 3, 4, 5), (5, 6)]),
    "implied result": ("ij,jk", [(3, 4), (4, 5)]),
    "three operands": ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 6)]),
}

OTHERS = {
    "a transpose": ("ijk->kij", [(2, 3, 4)]),
    "a sum": ("ijk->j", [(2, 3, 4)]),
    "nothing": ("ij->ij", [(2, 3)]),
    "outer": ("i,j->ij", [(3,), (4,)]),
    "elementwise": ("ij,ji->ij", [(3, 4), (4, 3)]),
    "three of one axis": ("b,bi,bi->bi", [(3,), (3, 4), (3, 4)]),
    "a diagonal": ("iij->ij", [(3, 3, 4)]),
    "a trace of a product": ("ij,jj->i", [(3, 4), (4, 4)]),
}


def of(equation, shapes):
    names = [f"x{number}" for number in range(len(shapes))]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    inputs = [value(name, shape) for name, shape in zip(names, shapes, strict=True)]
    draws = np.random.default_rng(0)
    feed = {name: draws.standard_normal(shape).astype(np.float32) for name, shape in zip(names, shapes, strict=True)}
    return model_of([node], inputs, ["y"], {}), feed


@pytest.mark.parametrize("name", [*PRODUCTS, *OTHERS])
def test_every_form_is_right(tmp_path, name):
    model, feed = of(*{**PRODUCTS, **OTHERS}[name])
    assert close(*run(model, tmp_path, feed))


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_products_of_matrices(tmp_path, name):
    names = [task.name for task in imported(of(*PRODUCTS[name])[0], tmp_path).tasks]
    assert any("matmul" in name for name in names), names
    assert not any("einsum" in name for name in names), names


def test_attention_moves_nothing(tmp_path):
    names = [task.name for task in imported(of(*PRODUCTS["attention scores"])[0], tmp_path).tasks]
    assert names == ["batch_matmul"]
