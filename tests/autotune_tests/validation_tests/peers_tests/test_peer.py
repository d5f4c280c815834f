"""The work of an engine, read from a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autotune.validation.bench import write_job
from autotune.validation.peers.peer import load_work


def test_work_is_read_as_it_was_written(tmp_path: Path) -> None:
    feed = {"x": np.ones((2, 3), np.float32), "y": np.zeros(1, np.int64)}
    write_job(tmp_path, None, feed, 3, "a.tuned", {"streams": 2}, tmp_path / "m.onnx")
    work = load_work(tmp_path)
    assert (work.threads, work.artifact, work.serve) == (3, Path("a.tuned"), {"streams": 2})
    assert work.source == (tmp_path / "m.onnx").resolve()
    assert work.model == str(tmp_path / "model.onnx")
    assert all(np.array_equal(work.feed[name], array) for name, array in feed.items())
