"""A home of their own for the tests, and one tiny artifact, built once and shared by those that only read it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from autotune.host.cpu_claims import CLAIMS
from autotune.measure.local_measurer import LocalMeasurer
from autotune.runtime.session import InferenceSession
from tests.autotune_tests.tiny import build_untuned, save_tiny, target


@dataclass(frozen=True)
class Tiny:
    """A model file and the untuned artifact beside it."""

    model: Path
    artifact: Path


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's data and cache folders: no test reads or writes the real ones."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.delenv("TUNE_LOG", raising=False)
        patch.setattr(CLAIMS, "enabled", False)  # tests that run side by side use the same CPUs
        yield folder


@pytest.fixture(scope="session")
def measurer() -> Iterator[LocalMeasurer]:
    """Workers that compile, started once."""
    with LocalMeasurer(target()) as measurer:
        yield measurer


@pytest.fixture
def tiny_build(tmp_path: Path, measurer: LocalMeasurer) -> Callable[[onnx.ModelProto], InferenceSession]:
    """Builds a model untuned and opens it."""

    def build(model: onnx.ModelProto) -> InferenceSession:
        onnx.save(model, tmp_path / "model.onnx")
        return InferenceSession(build_untuned(tmp_path / "model.onnx", tmp_path / "model.tuned", measurer))

    return build


@pytest.fixture(scope="session")
def tiny_built(tmp_path_factory: pytest.TempPathFactory, measurer: LocalMeasurer) -> Tiny:
    """Read only: shared by all tests."""
    folder = tmp_path_factory.mktemp("tiny")
    model = save_tiny(folder / "tiny.onnx", two_outputs=True)
    return Tiny(model, build_untuned(model, folder / "tiny.tuned", measurer))


@pytest.fixture
def tiny(tiny_built: Tiny, tmp_path: Path) -> Tiny:
    """A copy that the test may change."""
    model = Path(shutil.copy(tiny_built.model, tmp_path / "tiny.onnx"))
    return Tiny(model, Path(shutil.copytree(tiny_built.artifact, tmp_path / "tiny.tuned")))
