from __future__ import annotations

from pathlib import Path

import pytest

from autotune.contrib.replay.trace import TraceFile
from research.trace_writer import save_traces
from tests.autotune_tests.contrib_tests.replay_tests.made_up import trace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "toy.npz"
    save_traces(file, TraceFile("toy", "a machine", (trace("a"), trace("b", 3e-4, 1))))
    return file
