"""Guessed sizes by the kind of axis, and which models get several sets of them."""

import pytest
from onnx import TensorProto

from autotune.importer.onnx_model.input_shapes import LENGTHS, guessed_sets, guessed_shape
from tests.autotune_tests.importer_tests.onnx_cases import value

INT64 = TensorProto.INT64


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (("n", 3, "h", "w"), (1, 3, 224, 224)),
        (("?", "?", "?", "?"), (1, 3, 224, 224)),
        (("n", "h", "w", 3), (1, 224, 224, 3)),
        (("n", "channels", "height", "width"), (1, 3, 224, 224)),
        ((None, 80, 3000), (1, 80, 3000)),
        (("batch", 80, "frames"), (1, 80, 128)),
        (("batch", 12, "past_length", 64), (1, 12, 128, 64)),
        (("batch", "past_length + length"), (1, 256)),
        (("length", "batch", 16), (128, 1, 16)),
        (("num_points", 3), (128, 3)),
        ((None,), (1,)),
        (None, (1, 3, 224, 224)),
    ],
)
def test_guesses(shape, expected):
    assert guessed_shape(value("x", shape), {}) == expected


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("audio", ("batch", "samples"), (1, 16_000)),
        ("input_values", ("batch_size", "sequence_length"), (1, 16_000)),
        ("waveform", (None, None), (1, 16_000)),
        ("x", ("batch", 1, "num_samples"), (1, 1, 16_000)),
        ("audio_features", ("batch", 80, "frames"), (1, 80, 128)),
        ("x", ("n_samples", 30), (1, 30)),
    ],
)
def test_a_signal_has_a_second_of_samples(name, shape, expected):
    assert guessed_shape(value(name, shape), {}) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("state", (2, 1, 64)), ("h0", (2, 1, 64)), ("cn", (2, 1, 64)), ("x", (2, 128, 64))]
)
def test_only_the_batch_of_a_recurrent_state_is_open(name, expected):
    assert guessed_shape(value(name, (2, None, 64)), {}) == expected


def test_a_guess_keeps_to_what_is_known():
    sizes = {"length": 5}
    assert guessed_shape(value("x", ("batch", "length")), sizes) == (1, 5)
    assert guessed_shape(value("mask", ("batch", "length + 1")), sizes) == (1, 6)


@pytest.mark.parametrize(
    ("shapes", "several"),
    [
        ({"ids": ("batch", "sequence"), "mask": ("batch", "sequence")}, True),
        ({"ids": ("b", "encoder_length"), "decoder_ids": ("b", "decoder_length")}, True),
        ({"ids": (1, "?")}, True),
        ({"x": ("batch", 80, "frames"), "fixed": (1, 3)}, True),
        ({"x": ("batch", 3)}, False),
        ({"image": ("batch", 3, "h", "w")}, False),
        ({"image": ("batch", 3, "h", "w"), "ids": ("batch", "sequence")}, False),
        ({"ids": ("batch", "sequence"), "past": ("batch", 4, "past_sequence", 8)}, False),
        ({"ids": ("batch", "sequence"), "mask": ("batch", "sequence + 1")}, False),
        ({"audio": ("batch", "samples")}, False),
        ({"fixed": (1, 3)}, False),
    ],
)
def test_only_lengths_get_several_sets(shapes, several):
    sets = guessed_sets([value(name, shape) for name, shape in shapes.items()])
    assert len(sets) == (len(LENGTHS) if several else 1)
    for length, shapes_of_set in zip(LENGTHS if several else (), sets, strict=several):
        sizes = {size for shape in shapes_of_set.values() for size in shape}
        assert length in sizes
        assert not sizes & (set(LENGTHS) - {length})  # they move together


@pytest.mark.parametrize("names", [("input2", "input3"), ("onnx::LSTM_2", "past"), ("h0", "c0")])
def test_the_batch_of_states_of_any_name_is_no_length(names):
    shapes = {"x": ("b", "t", 256), "tokens": ("b", "u"), **dict.fromkeys(names, (1, "b", 320))}
    for length, shapes_of_set in zip(LENGTHS, guessed_sets([value(*item) for item in shapes.items()]), strict=True):
        assert list(shapes_of_set.values()) == [(1, length, 256), (1, length), (1, 1, 320), (1, 1, 320)]


def test_a_length_of_three_axes_is_no_batch_of_states():
    shapes = {"x": ("frames", 80), "mask": (4, "frames", 1)}
    sets = guessed_sets([value(*item) for item in shapes.items()])
    assert [shapes_of_set["x"][0] for shapes_of_set in sets] == list(LENGTHS)
