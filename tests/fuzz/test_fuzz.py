"""A few random graphs on every run; ``make fuzz COUNT=1000`` for more."""

import time

import numpy as np
import onnx
import pytest

from autotune.host.fork_server import Handler
from tests.fuzz.__main__ import FINE
from tests.fuzz.engine import difference
from tests.fuzz.graphs import random_model
from tests.fuzz.workers import fuzz

FEW = 20
"""Graphs of every test run: half a minute."""


def test_random_graphs_agree_with_onnxruntime():
    found = list(fuzz(range(FEW)))
    assert [f"{each.seed} {each.outcome} {each.message}" for each in found if each.outcome not in FINE] == []
    assert sum(each.outcome == "same" for each in found) >= FEW * 3 // 4
    assert sum(each.tuned for each in found) >= FEW


def test_a_seed_is_a_valid_model_and_always_the_same():
    for seed in range(100, 160):
        model = random_model(seed)
        onnx.checker.check_model(model, full_check=True)
        assert model.SerializeToString() == random_model(seed).SerializeToString()


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


def test_a_worker_that_hangs_or_dies_is_an_outcome():
    found = list(fuzz([3, 4], limit_s=0.5, handler=f"{__name__}:Misbehaving"))
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
