"""Every family of operators is registered."""

from onnx import defs

from autotune.importer.conversion.operator_catalog import EXPANDED
from autotune.importer.rewriting.registry import ENTRIES, Role


def test_expanded_operators_are_defined_by_a_function():
    schemas = {name: defs.get_schema(name) for name in EXPANDED if defs.has(name)}
    assert len(schemas) > 10
    assert [n for n, s in schemas.items() if not (s.has_function or s.has_context_dependent_function)] == []


def test_one_operator_of_every_family():
    converted = {"BitShift", "Clip", "DeformConv", "LSTM", "Decode"}
    rewritten = {"If", "Sum", "TopK", "Pad", "LpNormalization", "QuantizeLinear", "RNN", "Resize", "DFT"}
    assert {(Role.CONVERT, "", kind) for kind in converted} <= ENTRIES.keys()
    assert {(Role.REWRITE, "", kind) for kind in rewritten} <= ENTRIES.keys()
