"""Every registered rewrite, applied alone, keeps what graphs compute in ONNX Runtime.

Graphs come from ONNX's node suite, from the cases of ONNX Runtime's operators, and from ``MORE`` for forms that neither
has. Fusions have random graphs of their own (``fusion_tests``).
"""

from collections import Counter

import numpy as np
import pytest
from onnx import TensorProto, helper

from autotune.frame.frame import element
from autotune.importer.conversion import operator_catalog  # noqa: F401  # fills the registry
from autotune.importer.load import load_model
from autotune.importer.onnx_model.scope import Scope
from autotune.importer.onnx_model.shapes import OWN_DOMAIN
from autotune.importer.operators.blocked_ops import BLOCKED
from autotune.importer.rewriting.emit import Emit, Node
from autotune.importer.rewriting.registry import ENTRIES, Role
from schedules.vocabulary.errors import ModelError
from tests.autotune_tests.contrib_tests.classical_tests import (
    test_feature_ops,
    test_linear_models,
    test_tree_ensembles,
)
from tests.autotune_tests.importer_tests import families
from tests.autotune_tests.importer_tests.contrib_cases import Case
from tests.autotune_tests.importer_tests.low_bits_tests import test_low_bit_operators
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value
from tests.autotune_tests.importer_tests.operators_tests import test_contrib_attention, test_contrib_ops
from tests.autotune_tests.importer_tests.rewriting_tests.alone import differs, has_own, outputs, rewritten_alone
from tests.conformance.onnx_nodes.cases import node_cases
from tests.conformance.onnx_nodes.trial import element_shapes

REWRITES = {
    (domain, kind): entries[0]
    for (role, domain, kind), entries in ENTRIES.items()
    if role in (Role.REWRITE, Role.FOREIGN) and domain not in (OWN_DOMAIN, BLOCKED)
}
"""Rewrites of what ONNX Runtime can run. Blocked images lie otherwise in memory than they are declared, so all of a
model's operators on them are replaced or none: ``test_blocked_ops`` compares entire models."""

ENOUGH = 3
"""Graphs of the node suite that a rewrite changes, after which no more are tried."""

MOST = 24
"""Graphs of the node suite on which a rewrite is tried."""

RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
"""Operators whose rewrite refuses every node."""

REFUSING = RANDOM | {"Range", "Split"}
"""Operators whose rewrite refuses nodes, and changes none."""

OURS = {("", "TopK"), ("", "RoiAlign"), ("", "If"), ("ai.onnx.ml", "TreeEnsemble")}
OURS |= {("ai.onnx.ml", f"TreeEnsemble{kind}") for kind in ("Classifier", "Regressor")}
OURS |= {("com.microsoft", kind) for kind in ("MatMulNBits", "GatherBlockQuantized")}
"""Rewrites that write operators of ours, which only kernels compute: the conformance and operator tests run those."""

RNG = np.random.default_rng(0)
CONTRIB = [*test_contrib_ops.CASES, *test_contrib_attention.ALL, *test_low_bit_operators.ALL, *test_feature_ops.CASES]
CONTRIB += [*test_linear_models.LINEAR, *test_linear_models.REGRESSORS, *test_linear_models.MACHINES]
CONTRIB += test_tree_ensembles.CASES
UNIQUE = (np.array([3, 1, 3, 2, 1], np.float32),)
CONTRIB.append(Case("Unique", UNIQUE, outputs=(1, TensorProto.INT64, TensorProto.INT64)))
CONTRIB.append(Case("Range", tuple(np.array(number, np.float32) for number in (1, 7, 2)), (1, 2)))


def data(*shape, dtype=np.float32):
    return (RNG.standard_normal(shape) * 4).astype(dtype)


def numbers():
    """One-node graphs whose inputs decide that a rewrite applies."""
    for kind in ("Elu", "Selu", "HardSigmoid", "HardSwish", "LeakyRelu"):
        yield families.Case(kind, [data(3, 5, dtype=np.float64)], [], 1, 18)
    for approximate in ("none", "tanh"):
        yield families.Case("Gelu", [data(3, 5, dtype=np.float64)], [], 1, 20, {"approximate": approximate})
    for kind in ("Mul", "Div"):
        x = np.array([[1, np.inf, -2, np.nan]], np.float32)
        yield families.Case(kind, [np.zeros(1, np.float32), x], [0])
    for kind in ("ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare"):
        x, none = np.abs(data(2, 3, 4)) + 1, np.zeros(0, np.int64)
        yield families.Case(kind, [x, none], [1], 1, 18, {"noop_with_empty_axes": 1})
        if kind in ("ReduceMean", "ReduceL2", "ReduceLogSum"):
            yield families.Case(kind, [(x * 9).astype(np.int32), np.array([1])], [1], 1, 18, {"keepdims": 0})
    for kind in ("ReduceMax", "ReduceMin"):
        yield families.Case(kind, [RNG.random((3, 4)) > 0.5, np.array([1])], [1], 1, 20)
    yield families.Case("Unsqueeze", [RNG.random((3, 4)) > 0.5, np.array([1])], [1])
    yield families.Case("Sign", [np.array([0, 1, 200], np.uint8)])
    yield families.Case("Sign", [np.array([-7, 0, 1 << 40])])
    yield families.Case("Mod", [data(3, 4), data(3, 4)], [], 1, 18)
    yield families.Case("PRelu", [RNG.integers(-9, 9, (3, 5)).astype(np.int32), np.array([2], np.int32)], [1], 1, 18)
    for pads in ("SAME_UPPER", "SAME_LOWER"):
        bytes_of = (RNG.integers(0, 255, shape).astype(np.uint8) for shape in ((1, 2, 5, 6), (3, 2, 2, 3)))
        yield families.Case("ConvInteger", list(bytes_of), [1], 1, 18, {"auto_pad": pads, "strides": [2, 1]})
    yield families.Case(
        "Gemm", [data(3, 4), data(4, 2), np.full((3, 2), np.nan, np.float32)], [2], 1, 18, {"beta": 0.0}
    )
    for reduction in ("none", "add"):
        indices = np.argsort(RNG.random((3, 2, 7)), 0)
        inputs = [data(5, 6, 7), indices, data(3, 2, 7)]
        yield families.Case("ScatterElements", inputs, [1], 1, 18, {"axis": -3, "reduction": reduction})
    for groups in (1, 2, 6):
        inputs = [data(2, 6, 4, 5), data(groups), data(groups)]
        yield families.Case("GroupNormalization", inputs, [1, 2], 1, 18, {"num_groups": groups})


def of_type(kind, model):
    model.graph.output[0].type.tensor_type.elem_type = kind
    return model


def of_sequences():
    """Graphs that build a sequence of known elements and read it."""
    build = helper.make_node("SequenceConstruct", ["x", "z"], ["s"])
    place = {"k": np.array(-1)}
    infos = [value("x", (2, 3)), value("z", (2, 3))]
    for node in (
        helper.make_node("SequenceAt", ["s", "k"], ["y"]),
        helper.make_node("SequenceLength", ["s"], ["y"]),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=1),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1),
    ):
        kind = TensorProto.INT64 if node.op_type == "SequenceLength" else TensorProto.FLOAT
        yield of_type(kind, model_of([build, node], infos, ["y"], place if "k" in node.input else {}))
    joined = helper.make_node("ConcatFromSequence", ["t"], ["y"], axis=0)
    for node, constants in (
        (helper.make_node("SequenceErase", ["s", "k"], ["t"]), place),
        (helper.make_node("SequenceInsert", ["s", "x", "k"], ["t"]), place),
    ):
        yield model_of([build, node, joined], infos, ["y"], constants)
    has = helper.make_node("OptionalHasElement", ["o"], ["y"])
    for node in (helper.make_node("Optional", ["x"], ["o"]), helper.make_node("Identity", ["x"], ["o"])):
        yield of_type(TensorProto.BOOL, model_of([node, has], [value("x", (2, 3))], ["y"]))
    yield model_of([helper.make_node("OptionalGetElement", ["x"], ["y"])], [value("x", (2, 3))], ["y"])
    for kind in ("LessOrEqual", "GreaterOrEqual"):
        node = helper.make_node(kind, ["x", "x"], ["y"])
        yield of_type(TensorProto.BOOL, model_of([node], [value("x", (2, 3))], ["y"]))


def samples(same):
    """Graphs, their inputs, shapes for ``--input``, and the results that count besides ONNX Runtime's own, if any.

    Args:
        same: how often each rewrite was right so far.
    """
    for case in numbers():
        yield *families.model_of_cases([case]), {}, None
    for model in of_sequences():
        yield model, {info.name: data(2, 3) for info in model.graph.input}, {}, None
    for case in CONTRIB:
        yield case.model(), case.feed(), {}, None
    tried = Counter()
    for case in node_cases():
        kinds = {(node.domain, node.op_type) for node in case.model.graph.node} & REWRITES.keys()
        if any(same[kind] < ENOUGH and tried[kind] < MOST for kind in kinds):
            tried.update(kinds)
            plain = {name: array for name, array in case.inputs.items() if not isinstance(array, list)}
            lists = {name: array for name, array in case.inputs.items() if isinstance(array, list)}
            parts = {element(name, k): item for name, array in lists.items() for k, item in enumerate(array)}
            yield case.model, {**plain, **parts}, element_shapes(case), case.outputs


def test_every_rewrite_alone_keeps_what_a_graph_computes(tmp_path):
    path, same, wrong = tmp_path / "model.onnx", Counter(), []
    for model, feed, shapes, expected in samples(same):
        path.write_bytes(model.SerializeToString())
        try:
            loaded = load_model(path, shapes)
        except ModelError:  # a case with strings or with sequences of unknown length
            continue
        kinds = {(node.domain, node.op_type) for node in loaded.graph.node}
        for kind in kinds & REWRITES.keys():
            rewritten = rewritten_alone(loaded, REWRITES[kind])
            if rewritten is None:
                continue
            if has_own(rewritten):
                same[kind] += kind in OURS
                continue
            ours, theirs = outputs(rewritten, feed), outputs(loaded, feed)
            if ours is None or theirs is None:
                continue
            text = differs(ours, theirs)
            if text and (expected is None or differs(ours, expected)):
                wrong.append(f"{model.graph.name}: {kind}: {text}")
            same[kind] += not text
    assert not wrong
    assert sorted(kind for kind in REWRITES if not same[kind] and kind[1] not in REFUSING) == []


@pytest.mark.parametrize("kind", sorted(RANDOM))
def test_what_is_random_is_refused(kind):
    model = model_of([helper.make_node(kind, ["x"], ["y"], "dice")], [value("x", (2,))], ["y"])
    with pytest.raises(ModelError, match="random"):
        REWRITES["", kind](*_written(model))


def _written(model):
    emit = Emit(Node(model.graph.node[0], Scope(model)))
    return emit.node, emit
