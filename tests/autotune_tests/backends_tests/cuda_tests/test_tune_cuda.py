"""What a run for a CUDA target refuses before it costs anything, and what it leaves on disk; no device is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="needs NVRTC: pip install 'tune-compiler[cuda]'")

from autotune.cli.main import main
from autotune.options import Options
from autotune.tuning import tune_cuda as run
from schedules.errors import ArtifactError, VerificationError
from schedules.target import Target
from tests.models.catalog import cached

TARGET = Target.cuda("sm_90", 132)


@pytest.fixture
def pretended(monkeypatch) -> list[str]:
    """A device that answers zeros and finds nothing; gets a word for every search."""
    searches: list[str] = []

    class Zeros:
        def __init__(self, path: Path) -> None:
            self.path = path

        def run(self, names: None, feed: dict[str, Any]) -> list[Any]:
            assert (self.path / "manifest.json").is_file()
            return [np.zeros(spec["shape"], spec["dtype"]) for spec in run_manifest(self.path)["outputs"]]

    monkeypatch.setattr(run, "_check", lambda options: None)
    monkeypatch.setattr(run, "_tuned", lambda *rest: searches.append("searched"))
    monkeypatch.setattr(run, "InferenceSession", Zeros)
    return searches


def run_manifest(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((path / "manifest.json").read_text())
    return manifest


def test_what_does_not_pass_is_not_left_on_disk(pretended, tmp_path):
    out = tmp_path / "out" / "mlp.tuned"
    with pytest.raises(VerificationError, match=r"mlp\.tuned"):
        run.tune_cuda(cached("tiny_mlp"), Options(out=out, log=tmp_path / "log.db"), TARGET)
    assert pretended == ["searched"]
    assert list(out.parent.iterdir()) == []


def test_what_does_not_pass_leaves_what_was_there(pretended, tmp_path):
    out = tmp_path / "out" / "mlp.tuned"
    run.tune_cuda(cached("tiny_mlp"), Options(out=out, log=tmp_path / "log.db", device=False), TARGET)
    before = (out / "manifest.json").read_bytes()
    with pytest.raises(VerificationError):
        run.tune_cuda(cached("tiny_mlp"), Options(out=out, log=tmp_path / "log.db"), TARGET)
    assert (out / "manifest.json").read_bytes() == before
    assert list(out.parent.iterdir()) == [out]


def test_a_place_that_cannot_be_written_is_refused_before_the_search(pretended, tmp_path):
    (tmp_path / "file").write_text("")
    options = Options(out=tmp_path / "file" / "mlp.tuned", log=tmp_path / "log.db")
    with pytest.raises(ArtifactError, match="cannot write beside"):
        run.tune_cuda(cached("tiny_mlp"), options, TARGET)
    assert pretended == []


def test_a_log_that_is_not_there_is_not_made(tmp_path, capsys):
    gone = tmp_path / "gone.db"
    words = ["build", str(cached("tiny_mlp")), "--target", json.dumps({"kind": "cuda", "arch": "sm_90"}), "--no-device"]
    assert main([*words, "--out", str(tmp_path / "out.tuned"), "--log", str(gone), "--quiet"]) == 3
    assert "there is no tuning log at" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
