"""The wheel works outside the checkout, with the core alone, on every Python it says it does."""

import functools
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.models import cached

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTHONS = ("3.11", "3.12", "3.13")
GPU = '{"kind": "cuda", "arch": "sm_90"}'
WANTING = {
    "bench": ("bench", "model.tuned"),
    "bench openvino": ("bench", "model.tuned", "--against", "openvino"),
    "postgres": ("log", "stats", "--log", "postgresql://nobody@localhost/none"),
    "cluster": ("run", "model.onnx", "--quiet", "--cluster", "local"),
    "exchange": ("pack", "model.onnx"),
    "replay": ("replay", "trace.npz"),
    "cuda": ("run", "model.onnx", "--quiet", "--target", GPU, "--no-device", "--out", "gpu.tuned"),
}
"""Extra (and a word to tell two apart) → a command that needs it."""


def python_of(version):
    """Path of an interpreter of ``version``: on the PATH, of pyenv or of uv; None if there is none."""
    places = [shutil.which(f"python{version}")]
    homes = (Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python")
    for home in homes:
        interpreters = sorted(home.glob(f"*{version}.*/bin/python{version}"))
        places += [str(path) for path in interpreters]
    for place in filter(None, places):
        told = subprocess.run(
            [place, "-c", "import sys; print(sys.version_info[:2])"], check=False, capture_output=True
        )
        if told.returncode == 0 and told.stdout.decode().strip() == f"({version.replace('.', ', ')})":
            return place
    return None


@functools.cache
def wheel():
    """The built wheel, from a copy of what git would ship."""
    folder = ROOT / "build" / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel_file,) = folder.glob("*.whl")
    return wheel_file


def run(*command, folder, **environment):
    """One command in ``folder``, with nothing of this checkout on its path."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TUNE_LOG", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**kept, **environment},
        check=False,
        capture_output=True,
        text=True,
    )


def test_the_pythons_that_are_claimed_are_the_ones_that_are_tried():
    claimed = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if "Python :: 3." in line]
    assert tuple(claimed) == PYTHONS
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"


def test_every_file_that_is_no_source_is_shipped():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    for package in PROJECT["tool"]["setuptools"]["packages"]:
        for path in (ROOT / package.replace(".", "/")).iterdir():
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                assert any(path.match(pattern) for pattern in patterns), path


def test_every_room_ships_its_types():
    rooms = {package for package in PROJECT["tool"]["setuptools"]["packages"] if "." not in package}
    for room in rooms:
        assert (ROOT / room / "py.typed").exists()


@pytest.mark.slow
def test_the_wheel_holds_what_is_needed_and_no_tests():
    names = zipfile.ZipFile(wheel()).namelist()
    for name in (
        "autotune/py.typed",
        "autotune/report/report.html.j2",
        "autotune/backends/cpu/core.cc",
        "autotune/backends/cpu/core.h",
        "autotune/exchange/c_library/library.cc.in",
        "autotune/exchange/plain_model.py",
    ):
        assert name in names
    assert not [name for name in names if name.startswith(("tests/", "research/"))]
    assert not [name for name in names if re.match(r"autotune/contrib/\w+/", name)]


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_the_core_works_outside_the_checkout(version, tmp_path):
    python = python_of(version)
    if python is None:
        pytest.skip(f"no Python {version} is installed")
    venv = run(python, "-m", "venv", tmp_path / "venv", folder=tmp_path)
    assert venv.returncode == 0, venv.stderr
    bin_ = tmp_path / "venv" / "bin"
    pip = (bin_ / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel())
    done = run(*pip, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    homes = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    shutil.copy(cached("tiny_mlp"), tmp_path / "model.onnx")

    told = run(bin_ / "tune", "--version", folder=tmp_path)
    assert re.match(rf"tune-compiler {PROJECT['project']['version']} \(Python {version}\.", told.stdout), told.stderr
    assert "onnxruntime not installed" in told.stdout
    ran = run(bin_ / "tune", "run", "model.onnx", "--trials", "4", "--budget", "10s", folder=tmp_path, **homes)
    assert ran.returncode == 0, ran.stderr
    assert "outputs match onnx.reference" in ran.stdout
    for command in (("report", "model.tuned"), ("kernels", "model.tuned", "--explain"), ("log", "stats")):
        done = run(bin_ / "tune", *command, folder=tmp_path, **homes)
        assert done.returncode == 0, done.stderr
    for extra, command in WANTING.items():
        done = run(bin_ / "tune", *command, folder=tmp_path, **homes)
        assert done.returncode == 1, (extra, done.stderr)
        assert done.stderr.startswith("tune: ")
        assert done.stderr.count("\n") == 1
        assert f"pip install 'tune-compiler[{extra.partition(' ')[0]}]'" in done.stderr
