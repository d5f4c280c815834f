"""An exported artifact runs with TVM and NumPy alone, and gives the same outputs."""

import os
import subprocess
import sys

import numpy as np
import pytest

from autotune.cli.main import main
from autotune.exchange.export import export
from autotune.runtime.session import InferenceSession
from schedules.vocabulary.errors import ArtifactError

ALONE = """
import sys
sys.modules.update(dict.fromkeys(("autotune", "schedules", "search", "costmodels", "tuning_logs")))
import numpy as np
from plain_model import Model
x = np.load("x.npy")
np.savez("outputs.npz", **Model(".").run({"data": x}))
"""


def test_plain_tvm_gives_the_same_outputs(tiny_built, tmp_path, capsys):
    out = tmp_path / "exported"
    assert main(["export", str(tiny_built.artifact), "--out", str(out)]) == 0
    assert "plain_model.py says how" in capsys.readouterr().out
    x = np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32)
    np.save(out / "x.npy", x)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE], cwd=out, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    ours = InferenceSession(tiny_built.artifact)
    with np.load(out / "outputs.npz") as theirs:
        for arg, expected in zip(ours.get_outputs(), ours.run(None, {"data": x}), strict=True):
            np.testing.assert_array_equal(theirs[arg.name], expected)


def test_nothing_is_written_over(tiny_built, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ArtifactError, match="name another --out"):
        export(tiny_built.artifact, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
