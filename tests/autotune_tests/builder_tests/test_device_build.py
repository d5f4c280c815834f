"""What a run for a CUDA target refuses before it costs anything, and what it leaves on disk; no device is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="needs NVRTC: pip install 'tune-compiler[cuda]'")

from autotune.backends.cuda.cuda_backend import CudaBackend
from autotune.builder import accuracy
from autotune.builder.device_build import NOT_RUN
from autotune.cli.main import main
from autotune.options import Options
from autotune.tuning.result import Result
from autotune.tuning.tune import tune
from autotune.validation.verdict import Verdict
from schedules.target import Target
from schedules.vocabulary.errors import ArtifactError, VerificationError
from tests.models.catalog import cached

TARGET = Target.cuda("sm_90", 132)


@pytest.fixture
def pretended(monkeypatch) -> list[Path]:
    """A device that computes the wrong outputs and is not searched on; the artifacts that were compared."""
    compared: list[Path] = []

    def compare(path: Path, *_: Any) -> Verdict:
        assert (path / "manifest.json").is_file()
        compared.append(path)
        return Verdict("reference", 1.0, 1.0, passed=False)

    monkeypatch.setattr(CudaBackend, "check_options", lambda *_: None)
    monkeypatch.setattr(CudaBackend, "measures", lambda *_: False)
    monkeypatch.setattr(accuracy, "compare_isolated", compare)
    return compared


def tune_for_device(out: Path, **more: Any) -> Result:
    return tune(cached("tiny_mlp"), Options(out=out, log=out.parents[1] / "log.db", target=TARGET, **more))


def test_what_does_not_pass_is_not_left_on_disk(pretended, tmp_path):
    out = tmp_path / "out" / "mlp.tuned"
    with pytest.raises(VerificationError, match=r"mlp\.tuned"):
        tune_for_device(out)
    assert len(pretended) == 1
    assert list(out.parent.iterdir()) == []


def test_what_does_not_pass_leaves_what_was_there(pretended, tmp_path):
    out = tmp_path / "out" / "mlp.tuned"
    result = tune_for_device(out, device=False)
    assert result.verified is None
    assert result.reason == NOT_RUN
    before = (out / "manifest.json").read_bytes()
    with pytest.raises(VerificationError):
        tune_for_device(out)
    assert (out / "manifest.json").read_bytes() == before
    assert list(out.parent.iterdir()) == [out]


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_built(pretended, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot write beside"):
        tune_for_device(tmp_path / "file" / "mlp.tuned")
    assert pretended == []


def test_a_log_that_is_not_there_is_not_made(tmp_path, capsys):
    gone = tmp_path / "gone.db"
    words = ["build", str(cached("tiny_mlp")), "--target", json.dumps({"kind": "cuda", "arch": "sm_90"}), "--no-device"]
    assert main([*words, "--out", str(tmp_path / "out.tuned"), "--log", str(gone), "--quiet"]) == 3
    assert "there is no tuning log at" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
