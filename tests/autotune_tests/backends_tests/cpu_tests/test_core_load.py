"""The core under sanitizers: sixteen threads, failing kernels, cancellations, time limits, cores that open and close.

``make sanitize`` runs these for a minute each.
"""

import os
import subprocess
from pathlib import Path

import pytest
from tvm.support import cc

from autotune.backends.cpu.linking import CORE
from autotune.exchange import export_c

LOAD = Path(__file__).with_name("core_load.cc")
SECONDS = os.environ.get("TUNE_SANITIZE_S", "1")
TIMEOUT_S = 300.0
SANITIZERS = ["address,undefined", "thread"]


def flags(sanitizers):
    return [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", "-g"] if sanitizers else []


def check_compiler(sanitizers, folder):
    (folder / "empty.cc").write_text("int main() { return 0; }")
    command = [cc.get_cc(), *flags(sanitizers), str(folder / "empty.cc"), "-o", str(folder / "empty")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"the compiler has no -fsanitize={sanitizers}; install g++ with libasan, libubsan and libtsan")


@pytest.mark.parametrize("sanitizers", [pytest.param("", marks=pytest.mark.slow), *SANITIZERS])
def test_the_core_under_load(tmp_path, sanitizers):
    check_compiler(sanitizers, tmp_path)
    options = ["-O1", "-std=c++17", "-pthread", "-w", f"-I{CORE.parent}"]
    subprocess.run([cc.get_cc(), *options, *flags(sanitizers), str(LOAD), "-o", str(tmp_path / "load")], check=True)
    done = subprocess.run([tmp_path / "load", SECONDS], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("ok: ")
    assert done.stderr == ""


@pytest.mark.parametrize("sanitizers", SANITIZERS)
def test_the_self_test_of_a_c_library(tiny_built, tmp_path, monkeypatch, sanitizers):
    """With the core as it is in an exported library. Kernels are as compiled for the artifact."""
    check_compiler(sanitizers, tmp_path)
    for name in ("CORE_OPTIONS", "SELFTEST_OPTIONS"):
        options = (option for option in getattr(export_c, name) if option != "-static-libgcc")
        monkeypatch.setattr(export_c, name, (*options, *flags(sanitizers)))
    shared = (option for option in export_c.SHARED if option not in ("-static-libgcc", "-Wl,--no-undefined"))
    monkeypatch.setattr(export_c, "SHARED", tuple(shared))
    export_c.export_c(tiny_built.artifact, tmp_path / "out", "tiny")
    without = {"SELFTEST_NO_FORK": "1"} if sanitizers == "thread" else {}
    command = [tmp_path / "out/selftest/selftest"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=without, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all as recorded" in done.stdout
    assert done.stderr == ""
