"""Along which sizes calls may be padded or split, asked of functions whose answer is known."""

import numpy as np
import pytest
from onnx import TensorProto

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
        outputs_of_size = ask({"x": np.zeros((size, width), np.float32)})
        outputs.append([(f"y{number}", array.shape, "float32") for number, array in enumerate(outputs_of_size)])
    opened = open_interface(model, inputs, outputs)
    return with_independence(opened, [{"x": (2, width)}, {"x": (8, width)}], [ask], 0)


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
    common = interface(ask)
    assert common.symbols == ("batch",)
    assert (common.padded == {"batch"}, common.split == {"batch"}) == (padded, split)


def masked_mean(feed):
    keep = feed["mask"].astype(np.float32)
    return [(feed["x"] * keep).sum(axis=1) / np.maximum(keep.sum(axis=1), 1)]


def masked_softmax(feed):
    scores = np.where(feed["mask"] > 0, feed["x"], np.float32(-1e4)).astype(np.float64)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return [(shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)]


def mask_ignored(feed):
    return [feed["x"].mean(axis=1) + 0 * feed["mask"].sum()]


def mask_counts_what_is_left_out(feed):
    return [(feed["x"] * feed["mask"]).sum(axis=1) + (feed["mask"] == 0).sum(axis=1)]


def zero_keeps(feed):
    return [(feed["x"] * (feed["mask"] == 0)).sum(axis=1)]


def two_numbers_alike(feed):
    return [np.concatenate([feed["x"].max(axis=1), feed["mask"].max(axis=1)]).astype(np.float32)]


@pytest.mark.parametrize(
    ("ask", "padded"),
    [
        (masked_mean, True),
        (masked_softmax, True),
        (mask_ignored, False),
        (mask_counts_what_is_left_out, False),
        (zero_keeps, False),
        (two_numbers_alike, False),
    ],
)
def test_a_mask_may_be_padded_by_zeros(ask, padded):
    b = Builder("g")
    b.input("x", (3, "length"))
    b.input("mask", (3, "length"), TensorProto.INT64)
    b.op("Cast", "mask", to=1)
    b.op("Mul", "x", "cast0")
    model = b.model(y="mul0")
    inputs, outputs = [], []
    for size in (4, 16):
        shape = (3, size)
        inputs.append([("x", shape, "float32"), ("mask", shape, "int64")])
        outputs_of_size = ask({"x": np.zeros(shape, np.float32), "mask": np.ones(shape, np.int64)})
        outputs.append([(f"y{number}", array.shape, "float32") for number, array in enumerate(outputs_of_size)])
    opened = open_interface(model, inputs, outputs)
    sets = [{"x": (3, size), "mask": (3, size)} for size in (4, 16)]
    assert with_independence(opened, sets, [ask], 0).padded == ({"length"} if padded else set())


def test_outputs_follow_their_symbol():
    common = interface(two_rows_each)
    assert common.outputs == (OpenSpec("y0", ("batch", 6), "float32"),)
    assert common.cut_output(0, np.zeros((16, 6)), {"batch": 8}, {"batch": 3}).shape == (6, 6)


def test_survives_the_manifest():
    common = interface(two_rows_each)
    assert Interface.from_data(common.to_data()) == common


def test_sizes_must_agree():
    common = interface(rows)
    assert common.sizes({"x": (5, 6)}) == {"batch": 5}
    assert common.sizes({"x": (5, 7)}) is None
    assert common.sizes({"x": (5, 6, 1)}) is None
    assert common.sizes({}) is None
