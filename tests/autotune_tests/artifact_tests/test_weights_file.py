"""weights.bin: what was written is read, aligned, and equal weights of several parts are kept once."""

import numpy as np
import pytest

from autotune.artifact import weights_file
from autotune.artifact.weights_file import SharedWeights, read_weights, write_weights
from autotune.host.pages import ALIGNMENT
from schedules.vocabulary.errors import ArtifactError

WEIGHTS = (
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.array(7, np.int64),
    np.zeros((0, 4), np.float32),
    np.arange(8, dtype=np.int8)[::2],
)


@pytest.fixture(params=["read", "mapped"], autouse=True)
def way(request, monkeypatch):
    """Every test reads small files and maps large ones."""
    monkeypatch.setattr(weights_file, "MAPPED_BYTES", 1 if request.param == "mapped" else 1 << 40)
    return request.param


def test_what_is_mapped_follows_no_later_file_and_is_written_to_in_this_process_alone(tmp_path, way):
    entries = write_weights(tmp_path / "w", WEIGHTS[:1])
    (first,), (second,) = read_weights(tmp_path / "w", entries), read_weights(tmp_path / "w", entries)
    first[:] = -1
    (tmp_path / "w").unlink()
    write_weights(tmp_path / "w", (WEIGHTS[0] + 5,))
    assert np.array_equal(second, WEIGHTS[0])


def test_what_was_written_is_read_aligned(tmp_path):
    entries = write_weights(tmp_path / "w", WEIGHTS)
    arrays = read_weights(tmp_path / "w", entries)
    for wrote, read in zip(WEIGHTS, arrays, strict=True):
        assert (read.shape, read.dtype) == (wrote.shape, wrote.dtype)
        assert np.array_equal(read, wrote)
    assert all(entry["offset"] % ALIGNMENT == 0 for entry in entries)
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in arrays if array.size)


def test_weights_may_be_taken_in_any_order_and_more_than_once(tmp_path):
    entries = write_weights(tmp_path / "w", WEIGHTS)
    arrays = read_weights(tmp_path / "w", [entries[3], entries[0], entries[3]])
    assert [array.tolist() for array in arrays] == [WEIGHTS[3].tolist(), WEIGHTS[0].tolist(), WEIGHTS[3].tolist()]


def test_a_model_may_have_no_weights(tmp_path):
    assert write_weights(tmp_path / "w", ()) == []
    assert read_weights(tmp_path / "w", []) == ()


@pytest.mark.parametrize("offset", [-ALIGNMENT, ALIGNMENT, 1 << 40])
def test_weights_beyond_the_file_are_refused(tmp_path, offset):
    (entry,) = write_weights(tmp_path / "w", WEIGHTS[:1])
    with pytest.raises(ArtifactError, match="shorter than its manifest says"):
        read_weights(tmp_path / "w", [{**entry, "offset": offset}])


def test_equal_weights_are_kept_once():
    shared = SharedWeights()
    assert shared.add(WEIGHTS[:2]) == [0, 1]
    same = WEIGHTS[0].copy()
    assert shared.add([same, same.reshape(3, 2), same.astype(np.int32), same]) == [0, 2, 3, 0]
    assert len(shared.arrays) == 4
