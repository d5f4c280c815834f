"""ONNX Runtime's own operators become standard ones."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from autotune.importer.conversion.flat_model import flatten
from autotune.importer.conversion.foreign import expand_foreign, is_expandable, set_strays_apart
from autotune.importer.load import load_model
from autotune.importer.program import simplify
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.importer_tests.contrib_cases import MICROSOFT, floats
from tests.autotune_tests.importer_tests.onnx_cases import model_of, rewritten, value, written
from tests.models.catalog import cached

SCALE = {"s": np.ones(8, np.float32)}


def foreign(kind, *inputs, out, **attributes):
    return helper.make_node(kind, inputs, [out], out, domain=MICROSOFT, **attributes)


def small(nodes, outputs=("y",), shape=(2, 4, 8), **more):
    return model_of(nodes, [value("x", shape)], outputs, SCALE, domains=[MICROSOFT], **more)


@pytest.mark.parametrize(
    ("domain", "kind", "opset", "known"),
    [
        (MICROSOFT, "Gelu", 17, True),
        ("", "Gelu", 17, False),
        (MICROSOFT, "Bogus", 17, False),
        ("", "LayerNormalization", 16, True),
        ("", "LayerNormalization", 17, False),
        ("", "SimplifiedLayerNormalization", 20, True),
    ],
)
def test_what_can_become_standard_operators(domain, kind, opset, known):
    assert is_expandable(helper.make_node(kind, ["x"], ["y"], domain=domain), opset) is known


def test_a_chain_needs_one_round_although_onnx_infers_nothing_behind_the_first(tmp_path):
    nodes = [
        foreign("Gelu", "x", out="a"),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1]),
        foreign("FusedMatMul", "b", "x", out="c", transA=1, transB=1),
        foreign("QuickGelu", "c", out="y"),
    ]
    operators = rewritten(small(nodes), tmp_path, {"x": floats(2, 4, 8)})
    assert not operators.keys() & {"Gelu", "FusedMatMul", "QuickGelu"}


def test_sizes_computed_from_shapes_behind_a_foreign_operator_are_folded(tmp_path):
    nodes = [
        foreign("Gelu", "x", out="a"),
        helper.make_node("Shape", ["a"], ["all"]),
        helper.make_node("Gather", ["all", "zero"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["a", "to"], ["b"]),
        foreign("FusedMatMul", "b", "b", out="y", transB=1),
    ]
    model = small(nodes)
    model.graph.initializer.extend(
        [
            onnx.numpy_helper.from_array(np.array([0]), "zero"),
            onnx.numpy_helper.from_array(np.array([-1]), "rest"),
        ]
    )
    rewritten(model, tmp_path, {"x": floats(2, 4, 8)})


def test_old_models_are_raised_to_a_newer_opset(tmp_path):
    node = foreign("SkipLayerNormalization", "x", "x", "s", out="y")
    operators = rewritten(small([node], opset=11), tmp_path, {"x": floats(2, 4, 8)})
    plain = simplify(load_model(tmp_path / "model.onnx"))
    assert operators["ReduceMean"] == 2
    assert [opset.version for opset in plain.opset_import if not opset.domain] == [13]


def test_in_the_body_of_an_if(tmp_path):
    bodies = {
        branch: helper.make_graph(
            [foreign("Gelu", "x", out=branch)],
            branch,
            [],
            [helper.make_tensor_value_info(branch, TensorProto.FLOAT, None)],
        )
        for branch in ("then_branch", "else_branch")
    }
    model = small([helper.make_node("If", ["c"], ["y"], **bodies)])
    model.graph.input.append(value("c", (), TensorProto.BOOL))
    rewritten(model, tmp_path, {"x": floats(2, 4, 8), "c": np.array(True)})


def test_a_refused_form_stays_where_it_may(tmp_path):
    bad = foreign("FusedGemm", "x", "x", out="a", activation="Swoosh", transB=1)
    model = small([bad, foreign("Gelu", "a", out="y")], shape=(8, 8))
    loaded = load_model(written(model, tmp_path))
    with pytest.raises(ModelError, match=r"com.microsoft::FusedGemm \(node 'a'\)"):
        expand_foreign(onnx.ModelProto.FromString(loaded.SerializeToString()))
    kept = {node.op_type for node in flatten(loaded).graph.node if node.domain}
    assert "FusedGemm" in kept


@pytest.mark.parametrize(
    ("kind", "count", "why"),
    [
        ("RotaryEmbedding", 3, "not what the operator takes"),
        ("FusedMatMul", 2, "shapes do not fit"),
        ("QLinearSigmoid", 6, "no integer"),
    ],
)
def test_a_node_with_wrong_inputs_is_refused_in_one_line(kind, count, why, tmp_path):
    model = load_model(written(small([foreign(kind, *["x"] * count, out="y")], shape=(1, 2)), tmp_path))
    with pytest.raises(ModelError, match=why):
        simplify(model)


def test_strays_leave_onnx_s_domain_and_nothing_else_does():
    nodes = [
        helper.make_node("SimplifiedLayerNormalization", ["x", "s"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    model = model_of(nodes, [value("x", (2, 8))], ["y"], SCALE)
    set_strays_apart(model, 17)
    assert [node.domain for node in model.graph.node] == [MICROSOFT, ""]
    assert MICROSOFT in {opset.domain for opset in model.opset_import}


@pytest.mark.parametrize("name", ["tiny_encoder", "mt_dnn"])
def test_what_onnxruntime_s_optimiser_writes(name, tmp_path):
    path = tmp_path / "optimised.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    session = onnxruntime.InferenceSession(str(cached(name)), options, providers=["CPUExecutionProvider"])
    before = onnx.load(path)
    assert "SkipLayerNormalization" in {node.op_type for node in before.graph.node}
    plain = simplify(load_model(path))
    assert {node.domain for node in plain.graph.node} == {""}
    rng = np.random.default_rng(0)
    feed = {
        arg.name: rng.integers(0, 2, arg.shape)
        if "int" in arg.type
        else rng.standard_normal(arg.shape).astype(np.float32)
        for arg in session.get_inputs()
    }
    ours = onnxruntime.InferenceSession(plain.SerializeToString(), providers=["CPUExecutionProvider"])
    for expected, output in zip(session.run(None, feed), ours.run(None, feed), strict=True):
        np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-4)
