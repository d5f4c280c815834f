"""``python -m tests.emulation.rpc``: ``tune run --rpc`` on an AArch64 device that is Debian's Python and TVM, emulated.

The device is TVM's stock server, with the packages' AArch64 wheels in Debian's AArch64 Python, under QEMU; the tracker
and the tuner run here. What the device measures is QEMU's speed: this shows that the way there and back works.

FOLDER is made once, of downloads (some 400 MB). It takes ``dpkg --add-architecture arm64`` and ``apt-get update``.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tvm import rpc

import autotune
from tests.autotune_tests.measure_tests.rpc_server import end, free_port, tracker
from tests.models.catalog import cached
from tuning_logs.sql_store import open_log

DEBIAN = (
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "libgcc-s1", "libstdc++6"),
    *("zlib1g", "libexpat1", "libffi8", "libssl3", "libuuid1", "libbz2-1.0", "liblzma5", "libgomp1"),
)
WHEELS = ("apache-tvm", "apache-tvm-ffi", "numpy", "ml-dtypes", "psutil", "cloudpickle", "tornado", "typing-extensions")
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")
START_S = 240
SERVER = """import runpy, sys
sys.executable = {python!r}  # what the server starts its workers with
sys.argv = ["rpc_server", *sys.argv[1:]]
runpy.run_module("tvm.exec.rpc_server", run_name="__main__")
"""


def prepared(folder: Path) -> Path:
    """The command that is an AArch64 Python with TVM."""
    python, root = folder / "python", folder / "root"
    if python.exists():
        return python
    (folder / "debs").mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["apt-get", "-qq", "download", *(f"{name}:arm64" for name in DEBIAN)], cwd=folder / "debs", check=True
    )
    for package in (folder / "debs").glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
    wanted = [flag for platform in PLATFORMS for flag in ("--platform", platform)]
    where = ["--no-deps", "--only-binary=:all:", "--python-version", "3.11", "-c", "constraints.txt"]
    command = [sys.executable, "-m", "pip", "download", "-q", "-d", str(folder / "wheels"), *where, *wanted, *WHEELS]
    subprocess.run(command, check=True)
    for wheel in (folder / "wheels").glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(root / "site")
    quoted = shlex.quote(str(root))
    emulated = f"exec qemu-aarch64 -L {quoted} -0 {shlex.quote(str(python))} {quoted}/usr/bin/python3.11"
    python.write_text(f'#!/bin/sh\nexport PYTHONPATH={quoted}/site\n{emulated} "$@"\n')
    python.chmod(0o755)
    (folder / "server.py").write_text(SERVER.format(python=str(python)))
    return python


@contextmanager
def device(folder: Path, port: int, log: Path) -> Iterator[None]:
    """An emulated server that the tracker at ``port`` knows as ``arm``."""
    own = free_port()
    place = ["--host", "127.0.0.1", "--port", str(own), "--port-end", str(own + 1)]
    command = [
        str(prepared(folder)),
        str(folder / "server.py"),
        *place,
        "--tracker",
        f"127.0.0.1:{port}",
        "--key",
        "arm",
    ]
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    try:
        deadline = time.monotonic() + START_S
        while "server:arm" not in str(rpc.connect_tracker("127.0.0.1", port).summary()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the emulated server did not start: {log.read_text()[-1000:]}")
            time.sleep(2)
        yield
    finally:
        end(process)


def main() -> None:
    """Tune a tiny model there and print what its log has."""
    parser = argparse.ArgumentParser(prog="python -m tests.emulation.rpc", description="--rpc to an emulated device")
    parser.add_argument("--folder", type=Path, default=Path("build/aarch64").resolve())
    parser.add_argument("--model", default="tiny_mlp")
    parser.add_argument("--trials", type=int, default=6)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, tracker(Path(name)) as port:
        out, log = Path(name) / "made.tuned", Path(name) / "log.db"
        options = autotune.Options(rpc=f"127.0.0.1:{port}:arm", threads=1, trials=arguments.trials, out=out, log=log)
        with device(arguments.folder, port, Path(name) / "server.log"):
            result = autotune.tune(cached(arguments.model), options)
        with closing(open_log(log)) as kept:
            merged = sum(1 for _ in kept.records())
        print(f"{result.target}: {result.measured_trials} trials, {result.failed_trials} failed, {merged} records")


if __name__ == "__main__":
    main()
