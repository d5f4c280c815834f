"""Inputs for errors: the user's own, cut into samples, or random ones."""

import numpy as np
import pytest

from autotune.interface import TensorSpec
from autotune.validation.precisions.calibration_inputs import MOST_SAMPLES, RANDOM_SAMPLES, calibration_inputs
from schedules.vocabulary.errors import ModelError

SPECS = (TensorSpec("x", (2, 3), "float32"), TensorSpec("n", (2,), "int64"))


def save(path, samples, **changed):
    arrays = {
        "x": np.arange(6 * samples, dtype=np.float32).reshape(2 * samples, 3),
        "n": np.arange(2 * samples, dtype=np.int64),
    }
    np.savez(path, **{**arrays, **changed})
    return path


def test_random_ones_differ():
    first, second, *others = calibration_inputs(SPECS, None, 0)
    assert len(others) == RANDOM_SAMPLES - 2
    assert not np.array_equal(first["x"], second["x"])


def test_a_file_of_several_samples_is_cut_along_the_first_axis(tmp_path):
    samples = calibration_inputs(SPECS, save(tmp_path / "a.npz", 3), 0)
    assert [sample["n"].tolist() for sample in samples] == [[0, 1], [2, 3], [4, 5]]
    assert samples[1]["x"].tolist() == [[6, 7, 8], [9, 10, 11]]


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path):
    save(tmp_path / "b.npz", 1, n=np.array([8, 9]))
    save(tmp_path / "a.npz", 1)
    assert [sample["n"].tolist() for sample in calibration_inputs(SPECS, tmp_path, 0)] == [[0, 1], [8, 9]]


def test_no_more_are_used_than_are_worth_their_time(tmp_path):
    assert len(calibration_inputs(SPECS, save(tmp_path / "a.npz", MOST_SAMPLES + 5), 0)) == MOST_SAMPLES


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"x": np.zeros((2, 4), np.float32)}, r"x is float32\(2, 4\); the model takes float32\(2, 3\)"),
        ({"x": np.zeros((3, 3), np.float32)}, "several of those along the first axis"),
        ({"x": np.zeros((4, 3), np.float32)}, "2 of x.*same number of samples"),
        ({"x": np.zeros((2, 3), bool)}, "x is bool"),
        ({"y": np.zeros(1)}, "has arrays n, x, y; the model's inputs are n, x"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path, changed, told):
    with pytest.raises(ModelError, match=told):
        calibration_inputs(SPECS, save(tmp_path / "a.npz", 1, **changed), 0)


def test_files_that_are_none_are_named(tmp_path):
    with pytest.raises(ModelError, match=r"no \.npz file"):
        calibration_inputs(SPECS, tmp_path, 0)
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("no")
    (tmp_path / "cut.npz").write_bytes(save(tmp_path / "whole.npz", 1).read_bytes()[:-30])
    for name in ("one.npy", "text.npz", "cut.npz", "absent.npz"):
        with pytest.raises(ModelError, match=rf"{name} cannot be read as \.npz"):
            calibration_inputs(SPECS, tmp_path / name, 0)
