"""A few random graphs on every run; ``make fuzz COUNT=1000`` for more."""

import contextlib
import time

import numpy as np
import onnx
import pytest

from autotune.host.fork_server import Handler
from autotune.host.worker_pool import ForkServerProcess
from tests.fuzz.__main__ import FINE
from tests.fuzz.changes import collided, two_clips
from tests.fuzz.draft import Draft, finished
from tests.fuzz.engine import difference, has_other_types, reference
from tests.fuzz.faults import shows
from tests.fuzz.graphs import RARE, kernel_model, random_model, rare_sample
from tests.fuzz.grower import NoFitError
from tests.fuzz.halves import in_halves
from tests.fuzz.mutated import CHANGES, mutated_sample
from tests.fuzz.workers import FAMILIES, fuzz
from tests.fuzz.wraps import in_loop
from tests.fuzz.wrong_rewrites import FAULTS
from tests.models.builder import Builder

FEW = {"random": 12, "kernels": 6, "mutated": 12, "rare": 8, "attention": 6, "half": 4}
"""Graphs of every test run."""


@pytest.fixture(scope="module")
def server():
    """One server that forks all workers: TVM takes more than a second to load."""
    with ForkServerProcess() as process:
        yield process


@pytest.mark.parametrize("family", FEW)
def test_graphs_agree_with_onnxruntime(server, family):
    outcomes = list(fuzz(server, range(FEW[family]), family=family))
    assert [f"{one.seed} {one.outcome} {one.message}" for one in outcomes if one.outcome not in FINE] == []
    assert sum(one.outcome == "same" for one in outcomes) >= FEW[family] * 2 // 3
    assert sum(one.tuned for one in outcomes) >= FEW[family] // 2
    assert family != "kernels" or sum(one.assembled for one in outcomes) > sum(one.compiled for one in outcomes)


def test_a_seed_is_a_valid_model_and_always_the_same():
    for seed in range(100, 160):
        model = random_model(seed)
        onnx.checker.check_model(model, full_check=True)
        assert model.SerializeToString() == random_model(seed).SerializeToString()


def test_layers_of_wide_channels_are_valid_models_and_always_the_same():
    for seed in range(40):
        model = kernel_model(seed)
        onnx.checker.check_model(model, full_check=True)
        assert model.SerializeToString() == kernel_model(seed).SerializeToString()


def test_seldom_written_operators_are_valid_models_and_always_the_same():
    operators = set()
    for seed in range(120):
        sample = rare_sample(seed)
        onnx.checker.check_model(sample.model, full_check=True)
        operators |= {node.op_type for node in sample.model.graph.node}
        if seed % 20 == 0:
            assert sample.model.SerializeToString() == rare_sample(seed).model.SerializeToString()
    assert {"ScatterElements", "LSTM", "Einsum", "GridSample", "MatMulInteger", "TopK", "Attention"} <= operators
    assert len(operators) > len(RARE)


def test_changed_real_graphs_are_valid_models_and_always_the_same():
    made = set()
    for seed in range(60):
        try:
            sample = mutated_sample(seed)
        except NoFitError:
            continue
        onnx.checker.check_model(sample.model, full_check=True)
        made |= set(sample.changes[1:])
        if seed % 10 == 0:
            assert sample.model.SerializeToString() == mutated_sample(seed).model.SerializeToString()
    assert len(made) >= len(CHANGES) * 2 // 3


def test_names_that_the_importer_invents_are_given_to_values_of_the_model():
    names = set()
    for seed in range(60):
        draft = normalised_model(seed)
        before = {name for node in draft.graph.node for name in (*node.input, *node.output)}
        collided(draft)
        names |= {name for node in draft.graph.node for name in (*node.input, *node.output)} - before
    assert any(name.endswith(("/scale", "/scaled", "/shift")) for name in names), names


def normalised_model(seed):
    b = Builder("normalised", 17)
    b.input("x", (1, 4, 5, 5))
    weights = [b.constant(np.ones(4, np.float32)) for _ in range(4)]
    made = b.op("BatchNormalization", b.op("Relu", "x"), *weights)
    return Draft(b.model(y=made), np.random.default_rng(seed))


def test_loops_stop_early_and_add_up():
    conditions, loops = 0, 0
    for seed in range(40):
        draft = normalised_model(seed)
        with contextlib.suppress(NoFitError):
            in_loop(draft)
            finished(draft)
            loops += 1
            conditions += FAULTS["a Loop's condition is not asked"](draft.model)
    assert loops >= 30
    assert conditions >= 8


def test_constants_keep_their_rank():
    draft = normalised_model(0)
    assert [draft.shape(draft.constant(array)) for array in (np.float32(1), np.ones(1, np.float32))] == [(), (1,)]


def test_a_wrong_rewrite_shows():
    draft = normalised_model(0)
    two_clips(draft)
    model = finished(draft)
    feed = {"x": np.random.default_rng(0).standard_normal((1, 4, 5, 5), dtype=np.float32)}
    theirs = reference(model, feed)
    assert not shows(model, feed, theirs)
    assert FAULTS["nodes are merged that differ only in the position of an empty input"](model)
    assert shows(model, feed, theirs)


def test_halves_are_numbers_of_16_bits_that_may_differ_by_some_roundings():
    model = in_halves(random_model(500000))
    assert {value.type.tensor_type.elem_type for value in model.graph.input} == {onnx.TensorProto.FLOAT16}
    half = X.astype(np.float16)
    assert not difference([half], [np.nextafter(half, np.float16(9))], slack=20)
    assert difference([half * np.float16(1.1)], [half], slack=20)


def test_an_output_of_another_shape_is_no_rounding():
    assert has_other_types([X[:, None]], [X])
    assert not has_other_types([X + 1], [X])


def test_every_family_has_a_graph():
    assert all(FAMILIES[family](seed).model.graph.node for family in FAMILIES for seed in (2, 3))


def test_graphs_are_of_many_kinds():
    operators = {node.op_type for seed in range(200) for node in random_model(seed).graph.node}
    assert {"Conv", "MatMul", "Gemm", "MaxPool", "Concat", "Split", "Slice", "Resize", "Softmax"} <= operators
    assert len(operators) > 50


class Misbehaving(Handler):
    """Hangs on even seeds and dies on odd ones."""

    def __init__(self, stage):
        self._stage = stage

    def answer(self, job):
        self._stage.write_text("build tuned" if job.seed % 2 else "run untuned")
        if job.seed % 2:
            raise SystemExit(7)
        time.sleep(60)


def test_a_worker_that_hangs_or_dies_is_an_outcome(server):
    found = list(fuzz(server, [3, 4], limit_s=0.5, handler=f"{__name__}:Misbehaving"))
    assert [each.seed for each in found] == [3, 4]
    assert [(each.outcome, each.stage) for each in found] == [("crash", "build tuned"), ("hang", "run untuned")]
    assert "exit status" in found[0].message


X = np.array([1.0, -2.0, 0.5], np.float32)


@pytest.mark.parametrize(
    ("ours", "same"),
    [
        (X, True),
        (X * np.float32(1.0005), True),
        (X * np.float32(1.01), False),
        (np.array([1.0, -2.0, np.nan], np.float32), False),
        (X.astype(np.float64), False),
        (X[:2], False),
    ],
)
def test_what_counts_as_the_same(ours, same):
    assert (not difference([ours], [X])) is same
