"""One tiny artifact, built once and shared by the tests that only read it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.autotune_tests.tiny import build_untuned, save_tiny


@dataclass(frozen=True)
class Tiny:
    """A model file and the untuned artifact beside it."""

    model: Path
    artifact: Path


@pytest.fixture(scope="session")
def tiny_built(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Read only: shared by all tests."""
    folder = tmp_path_factory.mktemp("tiny")
    model = save_tiny(folder / "tiny.onnx", two_outputs=True)
    return Tiny(model, build_untuned(model, folder / "tiny.tuned"))


@pytest.fixture
def tiny(tiny_built: Tiny, tmp_path: Path) -> Tiny:
    """A copy that the test may change."""
    model = Path(shutil.copy(tiny_built.model, tmp_path / "tiny.onnx"))
    return Tiny(model, Path(shutil.copytree(tiny_built.artifact, tmp_path / "tiny.tuned")))
