"""Models that are cut: operators that become ones of our own stay what they are until their part is imported."""

import pytest
from onnx import TensorProto, helper

from autotune.importer.guarded_import import cut_model
from schedules.target import Target
from tests.autotune_tests.contrib_tests.classical_tests.test_tree_ensembles import CASES as TREES
from tests.autotune_tests.importer_tests.contrib_cases import MICROSOFT
from tests.autotune_tests.importer_tests.onnx_cases import written
from tests.autotune_tests.importer_tests.operators_tests.test_contrib_ops import ATTENTION, CASES, LOW_BITS

UNDECIDED = "SampleOp"
"""ONNX Runtime's own, which returns its input and which nobody writes."""

KINDS = {
    "TreeEnsembleRegressor": TREES,
    "TreeEnsembleClassifier": TREES,
    "DynamicQuantizeLSTM": CASES,
    "MatMulNBits": LOW_BITS,
    "GroupQueryAttention": ATTENTION,
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_imported_beside_what_nothing_imports(kind, tmp_path):
    case = next(case for case in KINDS[kind] if case.kind == kind)
    model = case.model()
    place = max(place for place, own_kind in enumerate(case.outputs) if own_kind == TensorProto.FLOAT)
    model.graph.node.append(helper.make_node(UNDECIDED, [f"y{place}"], ["last"], domain=MICROSOFT))
    model.graph.output.append(helper.make_tensor_value_info("last", TensorProto.FLOAT, None))
    if all(opset.domain != MICROSOFT for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    _, segments = cut_model(written(model, tmp_path), {}, Target.cpu("znver3", 1))
    of_kind = {node.op_type: segment.is_fallback for segment in segments for node in segment.model.graph.node}
    assert of_kind == {kind: False, UNDECIDED: True}
