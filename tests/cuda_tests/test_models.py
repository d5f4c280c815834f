"""Whole models become artifacts for a GPU that is not here: right device, no local memory, and they load again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings")

from autotune.artifact import read_artifact
from autotune.cli import main
from autotune.cuda.stub import has_driver, make_stub
from tests.models.catalog import cached
from tests.models.light import LIGHT

MODELS = (*LIGHT, "encoder")
LOAD = """
import sys
import tvm_ffi
from autotune.artifact import read_artifact
artifact = read_artifact(__import__("pathlib").Path(sys.argv[1]))
library = tvm_ffi.load_module(str(artifact.library))
symbols = {call.symbol for call in artifact.steps.calls}
assert symbols and all(library.implements_function(symbol, True) for symbol in symbols)
print(len(symbols))
"""


def build(model: Path, arch: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict:
    """What ``tune run --no-device --json`` says."""
    out, log = folder / f"{model.stem}-{arch}.tuned", folder / "log.db"
    target = json.dumps({"kind": "cuda", "arch": arch})
    code = main(
        [
            "run",
            str(model),
            "--target",
            target,
            "--no-device",
            "--out",
            str(out),
            "--log",
            str(log),
            "--json",
            "--quiet",
        ]
    )
    told = capsys.readouterr()
    assert code == 0, told.err
    return json.loads(told.out)


def loads(artifact: Path, folder: Path) -> int:
    """Kernels found in the artifact's library, loaded in a fresh process."""
    environment = dict(os.environ)
    if not has_driver():
        folder.mkdir(exist_ok=True)
        environment["LD_LIBRARY_PATH"] = str(make_stub(folder))
    done = subprocess.run([sys.executable, "-c", LOAD, str(artifact)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def check(name: str, arch: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = build(cached(name), arch, folder, capsys)
    artifact = read_artifact(Path(told["artifact"]))
    kernels = [kernel for group in artifact.provenance["kernels"].values() for kernel in group]
    assert artifact.target.arch == arch
    assert told["verified"] is None
    assert "nothing was run" in told["reason"]
    assert [kernel for kernel in kernels if kernel["local_bytes"]] == []
    assert all(kernel["registers"] > 0 for kernel in kernels)
    assert loads(artifact.path, folder / "stub") > 0


def test_a_small_model(tmp_path, capsys):
    check("tiny_cnn", "sm_90", tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", MODELS)
def test_models(name, arch, tmp_path, capsys):
    check(name, arch, tmp_path, capsys)
