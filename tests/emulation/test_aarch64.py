"""Artifacts for AArch64 are built here, exported as C libraries and run by QEMU: their outputs are ONNX Runtime's.

This proves numbers, not speed. It takes Debian's ``qemu-user`` and ``g++-aarch64-linux-gnu``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.artifact.known_models import remember_model
from autotune.artifact.plan import Choice, Plan
from autotune.backends.cpu.cpu_build import build_artifact
from autotune.exchange.export_c import export_c
from autotune.importer.guarded_import import import_model
from autotune.importer.program import Program
from autotune.measure.local_measurer import LocalMeasurer
from schedules.config import Config
from schedules.lower import BASELINE, load_program, lower
from schedules.target import Target
from schedules.vocabulary.errors import ArtifactError, ScheduleError, UsageError
from tests.emulation.kernels import emulated_command, needs
from tests.models.catalog import cached

needs_emulator = needs("aarch64")

ARM = Target.cpu("neoverse-n2", 2)
TOLERANCE = "1e-4"
"""Share of the largest number of an output by which one may be off: sums are added up in another order."""

SEEDS = 3
RANDOM = ("tiny_cnn", "tiny_encoder", "tiny_lstm", "tiny_strided", "tiny_grouped", "tiny_unet", "tiny_qdq")


def emulated(artifact: Path, folder: Path) -> str:
    """What the exported library's self-test says."""
    export_c(artifact, folder, "model")
    done = self_tested(folder)
    return done.stdout if done.returncode == 0 else f"failed: {done.stdout}{done.stderr}"


def self_tested(folder: Path) -> subprocess.CompletedProcess[str]:
    """The exported library's self-test, run. QEMU 7.2 may not fork a process of several threads."""
    command = emulated_command(ARM, str(folder / "selftest/selftest"), "", TOLERANCE)
    environment = {**os.environ, "SELFTEST_NO_FORK": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)


def drawn(program: Program, key: str, rng: np.random.Generator) -> Config:
    """A random config of one kernel that applies; the untuned program where none of a few does."""
    for config in program.spaces[key].sample(5, rng):
        try:
            lower(load_program(program.programs[key]), config, ARM)
        except ScheduleError:
            continue
        return config
    return BASELINE


def random_artifact(name: str, seed: int, folder: Path) -> Path:
    """A model with a random config of every kernel."""
    path = cached(name)
    _, program = import_model(path, {}, ARM)
    rng = np.random.default_rng(seed)
    configs = {task.key: drawn(program, task.key, rng) for task in program.tasks}
    plan = Plan(ARM, tuple(Choice(key, config, None) for key, config in sorted(configs.items())))
    out = folder / f"{name}-{seed}.tuned"
    with LocalMeasurer(ARM) as measurer:
        build_artifact(out, program, plan, path, measurer)
    remember_model(out, path)
    return out


@needs_emulator
@pytest.mark.parametrize("name", ["tiny_cnn", "tiny_encoder"])
def test_first_guesses_are_right_on_aarch64(name: str, tmp_path: Path) -> None:
    options = autotune.Options(target=ARM, device=False, out=tmp_path / "made.tuned", log=tmp_path / "log.db")
    result = autotune.tune(cached(name), options)
    assert result.verified is None
    assert result.measured_trials == 0
    assert "for another machine" in result.reason
    assert "all as recorded" in emulated(result.artifact, tmp_path / "exported")
    with pytest.raises(ArtifactError, match="was built for neon and this machine has"):
        autotune.InferenceSession(result.artifact)


@needs_emulator
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", RANDOM)
def test_random_configs_are_right_on_aarch64(name: str, seed: int, tmp_path: Path) -> None:
    assert "all as recorded" in emulated(random_artifact(name, seed, tmp_path), tmp_path / "exported")


@needs_emulator
@pytest.mark.slow
def test_a_wrong_weight_is_noticed(tmp_path: Path) -> None:
    artifact = random_artifact("tiny_cnn", 0, tmp_path)
    export_c(artifact, tmp_path / "exported", "model")
    weights = tmp_path / "exported/lib/model.weights"
    data = bytearray(weights.read_bytes())
    data[4096:8192] = bytes(4096)
    weights.write_bytes(data)
    assert self_tested(tmp_path / "exported").returncode != 0


def test_a_processor_of_another_architecture_is_refused_where_kernels_should_run() -> None:
    with pytest.raises(UsageError, match="kernels for neoverse-n2 cannot run on this machine; give --no-device"):
        autotune.tune("model.onnx", autotune.Options(target=ARM))
    with pytest.raises(UsageError, match="lanes are timed on the machine that they run on"):
        autotune.tune("model.onnx", autotune.Options(target=ARM, device=False, lanes="cpu:2x1"))
