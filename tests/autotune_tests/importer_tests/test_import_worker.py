"""Limits of an import: they grow with the model, and count the files beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from autotune.importer.import_worker import Limits, external_bytes
from tests.autotune_tests.tiny import save_tiny


def test_limits_grow_with_bytes_and_nodes_up_to_a_bound() -> None:
    limits = Limits()
    assert limits.seconds(0) == limits.cpu_s
    assert limits.seconds(32_000_000, 4) == pytest.approx(limits.cpu_s + 1.0 + 4 * limits.s_per_node)
    assert limits.seconds(0, 10**9) == limits.most_s
    assert limits.memory(100) == limits.memory_bytes + 100 * limits.memory_per_byte


def test_files_beside_a_model_count_once(tmp_path: Path) -> None:
    model = onnx.load(save_tiny(tmp_path / "tiny.onnx"))
    path = tmp_path / "external.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert external_bytes(path) == (tmp_path / "weights.bin").stat().st_size > 0


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "missing.bin", "a\0b"])
def test_other_files_do_not_count(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(b"x" * 100)
    folder = tmp_path / "model"
    folder.mkdir()
    tensor = onnx.numpy_helper.from_array(np.zeros(3, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    graph = onnx.helper.make_graph([], "g", [], [], [tensor])
    (folder / "model.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
    assert external_bytes(folder / "model.onnx") == 0


def test_no_model_has_no_bytes(tmp_path: Path) -> None:
    assert external_bytes(tmp_path / "missing.onnx") == 0
    (tmp_path / "broken.onnx").write_bytes(b"\xff\xff\xff")
    assert external_bytes(tmp_path / "broken.onnx") == 0
