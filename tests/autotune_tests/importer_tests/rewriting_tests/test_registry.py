"""The table of rewrites, fusions and converters."""

import pytest
from onnx import defs, helper

from autotune.importer.conversion import operator_catalog  # noqa: F401  # fills the registry
from autotune.importer.onnx_model.shapes import MICROSOFT, OWN_DOMAIN
from autotune.importer.operators.blocked_ops import BLOCKED
from autotune.importer.rewriting.registry import ENTRIES, STRAYS, Role, converts, fuses, rewrite, rewrites
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value


def test_every_rewrite_is_of_a_standard_operator_or_one_of_onnxruntime_s():
    rewritten = {(domain, kind) for role, domain, kind in ENTRIES if role in (Role.REWRITE, Role.FOREIGN)}
    assert {kind for domain, kind in rewritten if not domain and not defs.has(kind)} <= STRAYS
    others = [pair for pair in rewritten if pair[0]]
    assert all(domain in (MICROSOFT, BLOCKED, OWN_DOMAIN) or defs.has(kind, domain) for domain, kind in others)


def test_an_operator_has_one_entry():
    fusion = ENTRIES[Role.FUSE, "", "Pad"][0]
    with pytest.raises(ValueError, match="Sum"):
        rewrites("Sum")(lambda node, e: None)
    with pytest.raises(ValueError, match="Clip"):
        converts("Clip")(lambda bb, inputs, attrs, opset: None)
    with pytest.raises(ValueError, match="Pad"):
        fuses("Pad")(fusion)
    assert ENTRIES[Role.FUSE, "", "Pad"].count(fusion) == 1
    assert (Role.CONVERT, "", "Copy") in ENTRIES


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
