"""What is computed of few numbers is not computed again for each of many."""

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.autotune_tests.importer_tests.built import close, imported, run
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value

CHANNELS = 24


def scaled(chain, side, shape=(CHANNELS,)):
    """x (1, side, side, 24) + c behind a chain of operators on c; a number casts to that type."""
    names = ["c", *(f"c{index}" for index in range(1, len(chain))), "made"]
    steps = zip(chain, names[:-1], names[1:], strict=True)
    nodes = [
        helper.make_node("Cast", [read], [written], to=kind)
        if isinstance(kind, int)
        else helper.make_node(kind, [read], [written])
        for kind, read, written in steps
    ]
    nodes.append(helper.make_node("Add", ["x", "made"], ["y"]))
    return model_of(nodes, [value("x", (1, side, side, CHANNELS)), value("c", shape)], ["y"])


def kernels(model, folder):
    return sorted(task.name for task in imported(model, folder).tasks)


@pytest.mark.parametrize(
    ("chain", "side", "count"),
    [
        (["Sqrt", "Neg"], 28, 2),
        (["Sqrt", "Neg"], 8, 1),  # too few numbers for a kernel more
        (["Neg"], 28, 1),  # too little work
    ],
)
def test_a_kernel_of_its_own_where_it_pays(chain, side, count, tmp_path):
    assert len(kernels(scaled(chain, side), tmp_path)) == count


ROUNDED = (TensorProto.FLOAT16, TensorProto.FLOAT)


@pytest.mark.parametrize(
    ("chain", "count"),
    [(["Sqrt", "Neg"], 1), (["Sqrt", *ROUNDED, "Neg", *ROUNDED], 1), (["Sqrt", "Neg", "Abs", "Floor"], 2)],
)
def test_one_number_of_a_row_stays_with_it_while_the_chain_is_short(chain, count, tmp_path):
    assert len(kernels(scaled(chain, 56, shape=(1, 56, 56, 1)), tmp_path)) == count


REPEATED = {
    "Conv": ((1, 20, 1, 101), (20, 20, 1, 1), (1, 20, 20, 101)),
    "ConvTranspose": ((1, 20, 1, 51), (20, 20, 1, 3), (1, 20, 20, 53)),
    "MatMul": ((4, 1, 32), (32, 48), (4, 9, 48)),
}
"""Operator → shapes of its operands and of a tensor in which its result is repeated."""


@pytest.mark.parametrize("kind", REPEATED)
@pytest.mark.parametrize("activations", [(), ("Sigmoid",)])
def test_a_product_does_not_take_along_a_tensor_in_which_it_is_repeated(kind, activations, tmp_path):
    rng = np.random.default_rng(0)
    x, weights, larger = (rng.standard_normal(shape).astype(np.float32) for shape in REPEATED[kind])
    names = ["product", *activations]
    nodes = [
        helper.make_node(kind, ["x", "w"], ["product"]),
        *(helper.make_node(kind, [read], [kind]) for read, kind in itertools.pairwise(names)),
        helper.make_node("Add", ["u", "u2"], ["sum"]),
        helper.make_node("Add", ["sum", names[-1]], ["both"]),
        helper.make_node("Relu", ["both"], ["y"]),
    ]
    inputs = [value("x", x.shape), value("u", larger.shape), value("u2", larger.shape)]
    model = model_of(nodes, inputs, ["y"], {"w": weights})
    program = imported(model, tmp_path)
    assert not any(task.template == "generic" for task in program.tasks)
    for task in program.tasks:
        assert "relu" not in task.name or task.template == "elementwise"
    assert close(*run(model, tmp_path, {"x": x, "u": larger, "u2": larger}))


def test_results_stay(tmp_path):
    rng = np.random.default_rng(0)
    feed = {"x": rng.standard_normal((1, 28, 28, CHANNELS)), "c": rng.random(CHANNELS) + 0.1}
    feed = {name: array.astype(np.float32) for name, array in feed.items()}
    assert close(*run(scaled(["Sqrt", "Neg", "Exp"], 28), tmp_path, feed))


def test_a_result_of_the_model_may_be_small_and_read_by_many(tmp_path):
    model = scaled(["Sqrt", "Neg"], 28)
    model.graph.output.append(value("made", (CHANNELS,)))
    x, c = np.ones((1, 28, 28, CHANNELS), np.float32), np.full(CHANNELS, 4, np.float32)
    assert close(*run(model, tmp_path, {"x": x, "c": c}))


def row_of(kind, count):
    """``count`` operators of a kind that reads its operand many times, one after the other."""
    names = ["x", *(f"v{index}" for index in range(1, count)), "y"]
    nodes = [helper.make_node(kind, [read], [written]) for read, written in itertools.pairwise(names)]
    return model_of(nodes, [value("x", (4, 16))], ["y"], opset=18)


def is_divided(model, largest, folder):
    """Whether ``largest`` kernels, of two kinds at most, compute the model."""
    program = imported(model, folder)
    return len(program.tasks) <= 2 and sum(task.weight for task in program.tasks) == largest


@pytest.mark.parametrize(("count", "largest"), [(2, 1), (3, 2), (8, 4)])
def test_chains_that_read_their_operands_often_are_divided(count, largest, tmp_path):
    """Inlined into each other, eight of them would have millions of operators."""
    model = row_of("Softplus", count)
    assert is_divided(model, largest, tmp_path)
    feed = {"x": np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)}
    assert close(*run(model, tmp_path, feed))


@pytest.mark.parametrize(("count", "largest"), [(2, 1), (3, 1), (8, 2)])
def test_chains_of_mish_are_divided_as_well(count, largest, tmp_path):
    model = row_of("Mish", count)
    assert is_divided(model, largest, tmp_path)
    feed = {"x": np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)}
    assert close(*run(model, tmp_path, feed))
