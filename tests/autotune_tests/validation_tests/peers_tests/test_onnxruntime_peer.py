"""Every way to run ONNX Runtime gives the model's outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from autotune.validation.peers import onnxruntime_peer
from autotune.validation.peers.onnxruntime_peer import NO_ARENA, ONNXRUNTIME, ONNXRUNTIME_BEST, SETTINGS
from autotune.validation.peers.peer import Work
from tests.autotune_tests.tiny import tiny_model

pytest.importorskip("onnxruntime")


@pytest.fixture
def work(tmp_path: Path) -> Work:
    onnx.save(tiny_model(), tmp_path / "model.onnx")
    return Work(tmp_path, 1, Path("a.tuned"), {"data": np.ones((1, 16, 8, 8), np.float32)})


def test_every_way_gives_the_same_outputs(work: Work) -> None:
    wanted = None
    for way in {**ONNXRUNTIME.clients, **ONNXRUNTIME_BEST.ways}.values():
        engine = way(work)
        assert engine.precision == "fp32"
        (output, *_) = engine.run()
        wanted = output if wanted is None else wanted
        assert np.allclose(output, wanted, rtol=1e-4, atol=1e-5)


def test_a_client_has_a_session_on_its_share_of_the_threads(work: Work) -> None:
    engine = ONNXRUNTIME.clients["onnxruntime-per-client"](work)
    assert engine.clients is not None
    runs = engine.clients(3)
    assert len(runs) == 3
    assert runs is engine.clients(3)


def test_ways_differ_in_one_setting_each() -> None:
    options = onnxruntime_peer._options(2, "onnxruntime-no-spinning")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.enable_cpu_mem_arena
    assert not onnxruntime_peer._options(2, NO_ARENA).enable_cpu_mem_arena
    assert all(len(entries) <= 1 for entries in SETTINGS.values())
