"""The tables of rewrites and converters."""

import pytest
from onnx import defs, helper

from autotune.importer.conversion import operator_catalog
from autotune.importer.onnx_model.shapes import OWN_DOMAIN
from autotune.importer.rewriting.registry import (
    CONVERTERS,
    MICROSOFT,
    REWRITES,
    STRAYS,
    converts,
    rewrite,
    rewrites,
)
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def test_every_rewrite_is_of_a_standard_operator_or_one_of_onnxruntime_s():
    standard = {kind for kind in REWRITES if "::" not in kind}
    assert {kind for kind in standard if not defs.has(kind)} <= STRAYS
    others = [kind.split("::") for kind in REWRITES.keys() - standard]
    assert all(domain in (MICROSOFT, OWN_DOMAIN) or defs.has(kind, domain) for domain, kind in others)


def test_an_operator_has_one_entry():
    assert operator_catalog.EXPANDED.isdisjoint(REWRITES)
    with pytest.raises(AssertionError, match="Sum"):
        rewrites("Sum")(lambda node, e: None)
    with pytest.raises(AssertionError, match="Clip"):
        converts("Clip")(lambda bb, inputs, attrs, opset: None)
    assert "Copy" in CONVERTERS


def test_a_rewrite_keeps_the_names_of_outputs():
    model = model_of([helper.make_node("Sum", ["x", "x", "x"], ["y"])], [value("x", (2,))], ["y"])
    assert rewrite(model) == (True, None)
    assert [node.op_type for node in model.graph.node] == ["Add", "Add", "Identity"]
    assert model.graph.node[-1].output[0] == "y"
    assert rewrite(model) == (False, None)


def test_a_refused_node_stays_and_the_refusal_is_handed_back():
    nodes = [helper.make_node("Bernoulli", ["x"], ["n"], "culprit"), helper.make_node("Sum", ["x", "x"], ["y"])]
    model = model_of(nodes, [value("x", (2,))], ["n", "y"])
    changed, refusal = rewrite(model)
    assert changed
    assert "culprit" in str(refusal)
    assert [node.op_type for node in model.graph.node] == ["Bernoulli", "Add", "Identity"]
