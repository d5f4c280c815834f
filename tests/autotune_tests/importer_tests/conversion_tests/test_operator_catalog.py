"""Every family of operators is registered."""

from onnx import defs

from autotune.importer.conversion.operator_catalog import EXPANDED
from autotune.importer.rewriting.registry import CONVERTERS, REWRITES


def test_expanded_operators_are_defined_by_a_function():
    schemas = {name: defs.get_schema(name) for name in EXPANDED if defs.has(name)}
    assert len(schemas) > 10
    assert [n for n, s in schemas.items() if not (s.has_function or s.has_context_dependent_function)] == []


def test_one_operator_of_every_family():
    assert {"BitShift", "Clip", "DeformConv", "LSTM", "Decode"} <= CONVERTERS.keys()
    families = {"If", "Sum", "TopK", "Pad", "LpNormalization", "QuantizeLinear", "RNN", "Resize", "DFT"}
    assert families <= REWRITES.keys()
