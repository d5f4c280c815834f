"""Operators of integers, casts and indices at extremes are as ONNX Runtime's, or as docs/correctness.md says."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.built import run, run_ours
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value
from tests.conformance.integer_edges.cases import FAMILIES, QUICK, SIGNED, UNSIGNED, Case, ends
from tests.conformance.integer_edges.chains import model_of_chains
from tests.conformance.integer_edges.trial import difference, ours, theirs

LEAST = {"arithmetic": 80, "folded": 50, "division": 60, "reductions": 40, "powers": 15, "casts": 100, "indices": 20}
"""Cases of a family for which ONNX Runtime has kernels, at least."""


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    """Another process, which a division may stop: then the test fails, and no other does."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


def differences(family: str, dtypes: tuple[str, ...], assembled: bool = True) -> tuple[int, list[str]]:
    """How many cases were compared, and what is wrong."""
    cases: list[Case] = list(FAMILIES[family](dtypes))
    known = [(case, right) for case in cases if (right := theirs(case)) is not None]
    computed = ours([case for case, _ in known], assembled)
    complaints = [difference(case, outputs, right) for (case, right), outputs in zip(known, computed, strict=True)]
    return len(known), [words for words in complaints if words]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_case_is_right(process: ProcessPoolExecutor, family: str) -> None:
    count, wrong = process.submit(differences, family, QUICK).result()
    assert wrong == []
    assert count >= LEAST[family]


@pytest.mark.slow
@pytest.mark.parametrize("assembled", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_type_is_right(process: ProcessPoolExecutor, family: str, assembled: bool) -> None:
    _, wrong = process.submit(differences, family, (*SIGNED, *UNSIGNED), assembled).result()
    assert wrong == []


@pytest.mark.parametrize("dtype", [*QUICK, "uint32"])
def test_what_overflows_within_a_kernel_wraps_around(tmp_path, dtype: str) -> None:
    model, feed, labels = model_of_chains(dtype)
    outputs, right = run(model, tmp_path, feed)
    wrong = [label for label, one, other in zip(labels, outputs, right, strict=True) if not np.array_equal(one, other)]
    assert wrong == []


def chain() -> tuple[object, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(a + 1) ÷ b · 2 − a, (a + 1) mod b − a and a + 1 > a of int32, and what they are.

    No remainder of a quotient: LLVM takes most of a minute for what guards both divisions.
    """
    x = ends("int32")
    a, b = (grid.reshape(-1).copy() for grid in np.meshgrid(x, x, indexing="ij"))
    nodes = [
        helper.make_node("Add", ["a", "one"], ["more"]),
        helper.make_node("Div", ["more", "b"], ["q"]),
        helper.make_node("Mul", ["q", "two"], ["q2"]),
        helper.make_node("Sub", ["q2", "a"], ["chained"]),
        helper.make_node("Mod", ["more", "b"], ["plain"]),
        helper.make_node("Sub", ["plain", "a"], ["rest"]),
        helper.make_node("Greater", ["more", "a"], ["greater"]),
    ]
    weights = {"one": np.array(1, np.int32), "two": np.array(2, np.int32)}
    model = model_of(nodes, [value(name, a.shape, TensorProto.INT32) for name in "ab"], [], weights)
    for name, kind in (("chained", TensorProto.INT32), ("rest", TensorProto.INT32), ("greater", TensorProto.BOOL)):
        model.graph.output.append(value(name, a.shape, kind))

    def divided(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
        wide, by = top.astype(np.int64), bottom.astype(np.int64)
        safe = np.where(by == 0, 1, by)
        return np.where(by == 0, 0, np.sign(wide) * np.sign(safe) * (abs(wide) // abs(safe))).astype(np.int32)

    with np.errstate(over="ignore"):
        more = a + np.int32(1)
        safe = np.where(b == 0, 1, b)
        rest = np.where(b == 0, 0, np.mod(more.astype(np.int64), safe)).astype(np.int32) - a
        return model, {"a": a, "b": b}, {"chained": divided(more, b) * 2 - a, "rest": rest, "greater": more > a}


def test_division_within_a_chain_of_operators(tmp_path) -> None:
    model, feed, want = chain()
    for (name, right), output in zip(want.items(), run_ours(model, tmp_path, feed), strict=True):
        wrong = np.flatnonzero(output != right)
        assert not wrong.size, (name, [(int(feed["a"][i]), int(feed["b"][i]), output[i], right[i]) for i in wrong[:5]])


def test_division_within_a_function(tmp_path) -> None:
    body = [helper.make_node("Div", ["p", "q"], ["r"])]
    function = helper.make_function("own", "Quotient", ["p", "q"], ["r"], body, [helper.make_opsetid("", 17)])
    node = helper.make_node("Quotient", ["a", "b"], ["y"], domain="own")
    inputs = [value(name, (3,), TensorProto.INT8) for name in "ab"]
    model = model_of([node], inputs, [], functions=[function], domains=["own"])
    model.graph.output.append(value("y", (3,), TensorProto.INT8))
    feed = {"a": np.array([-128, 7, -7], np.int8), "b": np.array([-1, 0, 2], np.int8)}
    assert run_ours(model, tmp_path, feed)[0].tolist() == [-128, 0, -3]


def test_division_of_sizes(tmp_path) -> None:
    """Sizes of a Reshape by way of a quotient whose divisor is zero: 8 ÷ 0 = 0, plus 4."""
    nodes = [
        helper.make_node("Shape", ["x"], ["size"]),
        helper.make_node("Div", ["size", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "four"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    weights = {"zero": np.array([0]), "four": np.array([4]), "rest": np.array([-1])}
    model = model_of(nodes, [value("x", (8,))], ["y"], weights)
    x = np.arange(8, dtype=np.float32)
    assert np.array_equal(run_ours(model, tmp_path, {"x": x})[0], x.reshape(4, 2))


@pytest.mark.parametrize("kind", ["Div", "Mod"])
def test_a_constant_divisor_of_zero_is_refused_in_a_line(tmp_path, kind: str) -> None:
    """As ONNX Runtime does when it loads the model."""
    model = model_of([helper.make_node(kind, ["x", "d"], ["y"], "half")], [value("x", (2,), TensorProto.INT32)], [])
    model.graph.initializer.append(numpy_helper.from_array(np.array([2, 0], np.int32), "d"))
    model.graph.output.append(value("y", (2,), TensorProto.INT32))
    with pytest.raises(ModelError, match=rf"^operator {kind} \(node 'half'\) .*divisor is a constant with a zero$"):
        run_ours(model, tmp_path, {"x": np.array([1, 2], np.int32)})


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e38, -1e10])
def test_indices_made_of_floats_stay_within_the_table(tmp_path, number: float) -> None:
    """LLVM calls such a conversion undefined, and would drop the checks behind it."""
    nodes = [
        helper.make_node("Relu", ["f"], ["positive"]),
        helper.make_node("Cast", ["positive"], ["i"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "i"], ["y"]),
    ]
    table = np.arange(10, dtype=np.float32)
    model = model_of(nodes, [value("f", (64,))], ["y"], {"table": table})
    (output,) = run_ours(model, tmp_path, {"f": np.full(64, number, np.float32)})
    assert np.isin(output, table[[0, -1]]).all()
