"""One tiny artifact, built once and shared by the tests that only read it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from autotune.builder import one_lane
from autotune.builder.devices import lane_costs
from autotune.host.cpu_claims import CLAIMS
from autotune.measure.local_measurer import LocalMeasurer
from autotune.runtime import model_timing
from autotune.runtime.session import InferenceSession
from tests.autotune_tests.tiny import build_untuned, save_tiny, target
from tuning_logs import database


@dataclass(frozen=True)
class Tiny:
    """A model file and the untuned artifact beside it."""

    model: Path
    artifact: Path


@pytest.fixture(scope="session", autouse=True)
def all_cpus() -> Iterator[None]:
    """Sessions use all CPUs: tests that run side by side use the same ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CLAIMS, "enabled", False)
        yield


@pytest.fixture(scope="session", autouse=True)
def brief_timings() -> Iterator[None]:
    """Models are timed for a tenth of the seconds: no test expects one of two to be the faster one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_lane, "TIMED_S", one_lane.TIMED_S / 10)
        patch.setattr(model_timing, "DUEL_S", model_timing.DUEL_S / 10)
        patch.setattr(lane_costs, "PROFILE_S", lane_costs.PROFILE_S / 10)
        for timing, seconds in (
            (model_timing.median_s, model_timing.TIMED_S),
            (model_timing.race, model_timing.RACE_S),
        ):
            default, *others = timing.__defaults__
            assert default == seconds
            patch.setattr(timing, "__defaults__", (default / 10, *others))
        yield


@pytest.fixture(scope="module", autouse=True)
def volatile_logs() -> Iterator[None]:
    """Tuning logs are written without waiting for the disk: tests of the log itself have a folder of their own."""
    engine = database._sqlite_engine
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_sqlite_engine", lambda address, _, **pool: engine(address, "OFF", **pool))
        yield


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
