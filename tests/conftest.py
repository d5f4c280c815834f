"""Every test's home folders, hardware gates, golden files and property-test profile."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import platformdirs
import pytest
from hypothesis import settings

pytest_plugins = ["tests.rotation"]

GOLDEN = Path(__file__).parent / "golden"

KEPT = platformdirs.user_cache_path("tune-compiler-tests")
"""The folder of code that tests compiled: all workers and later runs share it. A key covers compiler and sources."""

ISA_FEATURES = {"avx2": ("avx2", "fma"), "avx512": ("avx512f",), "amx": ("avx512f", "amx_tile", "amx_bf16")}
"""CPU features that a test marked with this instruction set needs."""

# No test asserts a time, property tests neither; and the same commit gives the same examples.
settings.register_profile("project", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("project")


# Where bytecode is not kept, every program that a test starts compiles all modules anew: 0.6 s each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell without job control starts its background jobs deaf to Ctrl-C, and so are the programs that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


def cpu_features() -> set[str]:
    """Features the kernel reports; empty where it does not say (archspec knows no AMX of a CPU it cannot name)."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())


def missing_isa(name: str, features: set[str]) -> list[str]:
    """Features of instruction set ``name`` that a CPU with ``features`` lacks."""
    return [feature for feature in ISA_FEATURES[name] if feature not in features]


def missing_gpu() -> str:
    """Why no CUDA device can be used, or nothing. Asks the driver itself, so TVM is not imported."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver (libcuda.so.1)"
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "the CUDA driver finds no device"
    return ""


def pytest_collection() -> None:
    """Nothing of what is loaded is garbage: looking for some takes a sixth of the time in which tests are collected."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Half a million objects stay until the end; a look at them would also copy their pages in every fork."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("isa"):
        missing = missing_isa(marker.args[0], cpu_features())
        if missing:
            pytest.skip(f"this CPU lacks {', '.join(missing)}")
    if item.get_closest_marker("gpu"):
        reason = missing_gpu()
        if reason:
            pytest.skip(reason)


def keep_code(cache: Path) -> None:
    """Let ``cache``, a user's cache folder, keep compiled code in ``KEPT``."""
    own = cache / "tune-compiler"
    own.mkdir(parents=True)
    for name in ("code", "compiled"):
        with suppress(OSError):  # without a home everything is compiled again
            (KEPT / name).mkdir(parents=True, exist_ok=True)
        (own / name).symlink_to(KEPT / name, target_is_directory=True)


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's data and cache folders: no test reads or writes the real ones, and only compiled code is kept."""
    folder = tmp_path_factory.mktemp("home")
    keep_code(folder / "cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.delenv("TUNE_LOG", raising=False)
        yield folder


@pytest.fixture(scope="session", autouse=True)
def no_power_cut() -> Iterator[None]:
    """No test waits until its files are on the disk: those about power cuts say themselves what a disk has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)``: compare ``text`` with tests/golden/``name``, or write it with --update-golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; run pytest --update-golden and read the new file"
        assert text == path.read_text(), f"{path} differs; if the change is meant, run pytest --update-golden"

    return compare
