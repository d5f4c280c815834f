"""Models that are cut keep operators that become ours; functions of other opsets become part of their model."""

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

from autotune.importer.conversion.dead_branches import notes_of
from autotune.importer.conversion.flat_model import agree_on_opsets, flatten
from autotune.importer.guarded_import import cut_model, import_model
from autotune.importer.load import load_model
from autotune.validation.reference_runs import Reference, reference_outputs
from schedules.target import Target
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.contrib_tests.classical_tests.test_tree_ensembles import CASES as TREES
from tests.autotune_tests.importer_tests.built import close, run, run_ours
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


OLDER = {
    "as ONNX Runtime reads it": ('"" : 11', "u = Softmax(x)", lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "axes as attributes": ('"" : 11', "u = ReduceSum<axes = [1], keepdims = 1>(x)", lambda x: x.sum(1, keepdims=True)),
    "limits as attributes": ('"" : 9', "u = Clip<min = -0.5, max = 0.5>(x)", lambda x: x.clip(-0.5, 0.5)),
    "a domain that the model lacks": (
        '"" : 17, "com.microsoft" : 1',
        "u = com.microsoft.QuickGelu<alpha = 1.0>(x)",
        lambda x: x / (1 + np.exp(-x)),
    ),
    "the same at another opset": ('"" : 15', "u = local.inner(x)", np.negative),
}
"""Peculiarity of a function → its opsets, its body, and the function that it computes."""

INNER = '<domain: "local", opset_import: ["" : 16]> inner (x) => (u) { u = Neg(x) }'


def calling(opsets, body, model_opset=17):
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : {model_opset}, "local" : 1]>
        g (float[2,3,4] x) => (float[2,N,4] y) {{ e = Exp(x) z = local.outer(e) y = Identity(z) }}
        {INNER} <domain: "local", opset_import: [{opsets}, "local" : 1]> outer (x) => (u) {{ {body} }}"""
    )


@pytest.mark.parametrize("name", OLDER)
def test_functions_of_older_opsets_mean_what_these_say(name, tmp_path):
    opsets, body, expected = OLDER[name]
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    model = load_model(written(calling(opsets, body), tmp_path))
    for reference in (reference_outputs, lambda model, feed: Reference(model).outputs(feed)):
        _, (made,) = reference(model, {"x": x})
        np.testing.assert_allclose(made, expected(np.exp(x)), 1e-5, 1e-6)
    flat = flatten(model)
    assert not flat.functions
    _, (made,) = reference_outputs(flat, {"x": x})
    np.testing.assert_allclose(made, expected(np.exp(x)), 1e-5, 1e-6)


BODIES = {
    "a value of the function": "p = Neg(u)",
    "another domain": "p = com.microsoft.QuickGelu<alpha = 1.0>(x)",
}


@pytest.mark.parametrize("name", BODIES)
def test_a_function_of_a_newer_opset_may_have_branches(name, tmp_path):
    body = f"""u = Identity(x) s = ReduceSum<keepdims = 0>(x) c = Cast<to = 9>(s)
        v = If(c) <then_branch = t () => (float[A,B,C] p) {{ {BODIES[name]} }},
        else_branch = e () => (float[A,B,C] q) {{ q = Exp(u) }}>"""
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "local" : 1, "com.microsoft" : 1]>
        g (float[2,3,4] x) => (float[2,N,4] y) {{ e = Exp(x) z = local.outer(e) y = Identity(z) }}
        <domain: "local", opset_import: ["" : 18, "com.microsoft" : 1]> outer (x) => (v) {{ {body} }}"""
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    loaded = load_model(written(model, tmp_path), foreign=True)
    assert not list(notes_of(loaded))
    _, (made,) = reference_outputs(loaded, {"x": x})
    wide = np.exp(x)
    expected = -wide if name == "a value of the function" else wide / (1 + np.exp(-wide))
    np.testing.assert_allclose(made, expected, 1e-5, 1e-6)


def gelu(x):
    return x / (1 + np.exp(-x))


QUICK = "com.microsoft.QuickGelu<alpha = 1.0>"
UNTYPED = {
    "a function": ("z = local.f(x) y = Neg(z)", f"v = {QUICK}(x)", lambda x: -gelu(x)),
    "a function of a function": (
        "z = local.f(x) y = Neg(z)",
        "w = local.g(x) v = Exp(w)",
        lambda x: -np.exp(gelu(x)),
    ),
    "a branch of a function": (
        "z = local.f(x) y = Neg(z)",
        f"""k = Constant<value = bool {{1}}>() w = If(k) <then_branch = t () => (p) {{ p = {QUICK}(x) }},
        else_branch = e () => (q) {{ q = Exp(x) }}> v = Neg(w)""",
        gelu,
    ),
    "a branch": (
        f"""s = ReduceSum<keepdims = 0>(x) c = Cast<to = 9>(s)
        z = If(c) <then_branch = t () => (p) {{ p = {QUICK}(x) }},
        else_branch = e () => (q) {{ q = {QUICK}(x) }}> y = Neg(z)""",
        "v = Neg(x)",
        lambda x: -gelu(x),
    ),
    "a loop": (
        f"""k = Constant<value = int64 {{2}}>() b = Constant<value = bool {{1}}>()
        z = Loop(k, b, x) <body = l (int64 i, bool d, float[A,B] p) => (bool d2, r) {{
            d2 = Identity(d) r = {QUICK}(p) }}> y = Neg(z)""",
        "v = Neg(x)",
        lambda x: -gelu(gelu(x)),
    ),
}
"""Place of an operator that ONNX lacks, whose result something reads → graph, function f, and what they compute."""


@pytest.mark.parametrize("name", UNTYPED)
def test_what_reads_an_operator_that_onnx_lacks_within_a_body(name, tmp_path):
    graph, body, expected = UNTYPED[name]
    domains = '"" : 17, "local" : 1, "com.microsoft" : 1'
    inner = f'<domain: "local", opset_import: [{domains}]> g (x) => (v) {{ v = {QUICK}(x) }}'
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: [{domains}]> m (float[3,4] x) => (float[3,4] y) {{ {graph} }}
        <domain: "local", opset_import: [{domains}]> f (x) => (v) {{ {body} }} {inner}"""
    )
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    ours, theirs = run(model, tmp_path, {"x": x})
    assert close(ours, theirs)
    assert close(ours, [expected(x)])


@pytest.mark.parametrize("opsets", [(13, 13), (13, 17), (16, 17)])
def test_a_function_may_have_operators_that_onnx_runtime_writes_into_onnx_s_domain(opsets, tmp_path):
    own, other = opsets
    body = "s = Constant<value = float[4] {1.0, 1.0, 1.0, 1.0}>() u = LayerNormalization(x, s)"
    model = calling(f'"" : {other}', body, model_opset=own)
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    (ours,) = run_ours(model, tmp_path, {"x": x})  # ONNX Runtime dies of some of them
    wide = np.exp(x)
    centred = wide - wide.mean(-1, keepdims=True)
    assert close([ours], [centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)])


def test_a_function_that_is_read_otherwise_is_noted_once(tmp_path, caplog):
    opsets, body, _ = OLDER["as ONNX Runtime reads it"]
    model = calling(opsets, body)
    path = written(model, tmp_path)
    said = "function 'outer' of opset 11 is read by the model's opset 17, as in ONNX Runtime"
    (note,) = notes_of(load_model(path))
    assert note.startswith(said)
    import_model(path, {}, Target.cpu("znver3", 1))
    assert caplog.text.count(said) == 1
    helper.set_model_props(model, {"tune.opset": "all is well"})
    (note,) = notes_of(load_model(written(model, tmp_path)))
    assert note.startswith(said)


def test_operators_of_other_domains_are_not_read_otherwise():
    """ONNX has a Gelu of its own since opset 20."""
    model = calling('"" : 17, "com.microsoft" : 1', "u = com.microsoft.Gelu(x)", model_opset=20)
    assert not agree_on_opsets(model)  # the model lacks the domain
    assert not list(notes_of(model))


def test_a_function_of_a_newer_opset_is_refused_in_words(tmp_path):
    model = calling('"" : 18', "k = Constant<value_ints = [1]>() u = ReduceMax(x, k)", model_opset=13)
    with pytest.raises(ModelError, match="function 'outer' is of opset 18 and the model of 13; export both for one"):
        load_model(written(model, tmp_path))
