"""Along which sizes calls may be padded or split, asked of functions whose answer is known."""

import numpy as np
import pytest

from autotune.importer.onnx_model.open_axes import open_interface
from autotune.interface import Interface, OpenSpec
from autotune.validation.independence import with_independence
from tests.models.builder import Builder

W = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


def interface(ask, *, width=6):
    """What (n, 6) inputs of 2 and 8 rows lead to."""
    b = Builder("g")
    b.input("x", ("batch", width))
    b.op("Relu", "x")
    model = b.model(y="relu0")
    inputs, outputs = [], []
    for size in (2, 8):
        inputs.append([("x", (size, width), "float32")])
        made = ask({"x": np.zeros((size, width), np.float32)})
        outputs.append([(f"y{number}", array.shape, "float32") for number, array in enumerate(made)])
    opened = open_interface(model, inputs, outputs)
    return with_independence(opened, [{"x": (2, width)}, {"x": (8, width)}], ask, 0)


def rows(feed):
    return [np.tanh(feed["x"] @ W)]


def running_sum(feed):
    return [np.cumsum(feed["x"], axis=0)]


def two_rows_each(feed):
    return [np.repeat(feed["x"], 2, axis=0)]


def mean_removed(feed):
    return [feed["x"] - feed["x"].mean(axis=0)]


def largest(feed):
    return [feed["x"].max(axis=0)]


def zero_is_neutral(feed):
    return [feed["x"] + feed["x"].sum(axis=0, dtype=np.float64).astype(np.float32)]


def backwards(feed):
    return [feed["x"][::-1].copy()]


def fixed_size(feed):
    if len(feed["x"]) not in (2, 8):
        raise ValueError("no such shape")
    return [feed["x"]]


@pytest.mark.parametrize(
    ("ask", "padded", "split"),
    [
        (rows, True, True),
        (two_rows_each, True, True),
        (running_sum, True, False),
        (mean_removed, False, False),
        (largest, False, False),
        (zero_is_neutral, False, False),  # right with zeros, but not whatever stands behind: not independent
        (backwards, False, False),
        (fixed_size, False, False),
    ],
)
def test_what_may_be_padded_and_split(ask, padded, split):
    found = interface(ask)
    assert found.symbols == ("batch",)
    assert (found.padded == {"batch"}, found.split == {"batch"}) == (padded, split)


def test_outputs_follow_their_symbol():
    found = interface(two_rows_each)
    assert found.outputs == (OpenSpec("y0", ("batch", 6), "float32"),)
    assert found.output_shape(0, (16, 6), {"batch": 3}) == (6, 6)


def test_survives_the_manifest():
    found = interface(two_rows_each)
    assert Interface.from_data(found.to_data()) == found


def test_sizes_must_agree():
    found = interface(rows)
    assert found.sizes({"x": (5, 6)}) == {"batch": 5}
    assert found.sizes({"x": (5, 7)}) is None
    assert found.sizes({"x": (5, 6, 1)}) is None
    assert found.sizes({}) is None
