"""Frames: their steps, their plain data, and sequences taken apart."""

import json

import numpy as np
import pytest

from autotune.frame.frame import Frame, HostStep
from autotune.interface import OpenSpec, TensorSpec
from schedules.vocabulary.errors import RunError

FRAME = Frame(
    (TensorSpec("x[0]", (2,), "float32"), TensorSpec("x[1]", (3,), "float32")),
    (OpenSpec("y", ("?",), "float32"), OpenSpec("s", (2,), "sequence")),
    {"x": 2},
    (),
    (HostStep("Cut", ("y", "n"), ("y",), {"axis": 0}), HostStep("Pack", ("y", "x[1]"), ("s",))),
)


def test_a_frame_survives_its_plain_data():
    assert Frame.from_data(json.loads(json.dumps(FRAME.to_data()))) == FRAME


def test_steps_cut_and_pack():
    values = {"y": np.arange(4.0), "n": np.array(2), "x[1]": np.ones(3)}
    FRAME.run(FRAME.after, values)
    assert values["y"].tolist() == [0, 1]
    assert [part.tolist() for part in values["s"]] == [[0, 1], [1, 1, 1]]


def test_a_step_that_fails_is_named():
    with pytest.raises(RunError, match="Cut, which makes 'y'"):
        FRAME.run(FRAME.after, {"y": np.zeros(()), "n": np.array(2)})


def test_sequences_are_taken_apart():
    flat = FRAME.elements({"x": [np.zeros(2), np.ones(3)]})
    assert sorted(flat) == ["x[0]", "x[1]"]
    with pytest.raises(RunError, match="has 1 elements"):
        FRAME.elements({"x": [np.zeros(2)]})
