"""On systems where something is missing a command and a session run, or say in one line why they do not."""

import os
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from autotune.artifact.known_models import remember_model, remembered_model
from autotune.options import cache_folder, default_log
from schedules.vocabulary.errors import UsageError
from tuning_logs.sql_store import open_log

ROOT = Path(__file__).parents[3]

SESSION = """
import sys
import numpy as np
import autotune
from schedules.vocabulary.errors import AutotuneError
try:
    session = autotune.InferenceSession(sys.argv[1])
    feed = {each.name: np.zeros(each.shape, np.float32) for each in session.get_inputs()}
    print("ran", len(session.run(None, feed)))
except AutotuneError as error:
    print("refused", error)
"""


def environment(**more):
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **more}


def can_unshare():
    if os.geteuid() != 0:
        return False
    try:
        return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def run(command, before="", **more):
    """Run ``command`` where ``before`` has changed the mounts."""
    shell = ["bash", "-c", f'{before}\nexec "$@"', "bash", *map(str, command)]
    isolated = ["unshare", "-m", "--propagation", "private", *shell] if before else shell
    return subprocess.run(isolated, capture_output=True, text=True, timeout=240, env=environment(**more), cwd="/")


def check(done):
    """It ran, or said why not in one line."""
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("tune: ")]
        assert len(lines) == 1, done.stderr
    return done


EMPTY = "mount -t tmpfs -o ro none {}"
MOUNTS = {
    "no temporary folder": "; ".join(EMPTY.format(folder) for folder in ("/var/tmp", "/tmp")),
    "no shared memory": f"umount -l /dev/shm; {EMPTY.format('/dev/shm')}",
    "no /proc": EMPTY.format("/proc"),
    "no /sys": EMPTY.format("/sys"),
    "a read-only root": 'for each in / /tmp /run /var /home /root; do mount --bind "$each" "$each" && '
    'mount -o remount,ro,bind "$each"; done 2>/dev/null',
    "a mount without a source": "mount -t tmpfs '' /mnt",
}


@pytest.fixture
def kept(tiny, tmp_path_factory):
    """An artifact that is not below /tmp, where mounts may hide it."""
    folder = Path("/var/lib") if os.access("/var/lib", os.W_OK) else tmp_path_factory.mktemp("kept")
    place = folder / f"tune-test-{os.getpid()}"
    subprocess.run(["cp", "-r", str(tiny.artifact.parent), str(place)], check=True)
    yield place
    subprocess.run(["rm", "-rf", str(place)], check=True)


@pytest.mark.slow
@pytest.mark.skipif(not can_unshare(), reason="only root can change mounts")
@pytest.mark.parametrize("what", MOUNTS)
def test_a_session_and_a_build_where_something_is_missing(kept, what):
    python = sys.executable
    if what == "no temporary folder" and any(Path(python).is_relative_to(hidden) for hidden in ("/tmp", "/var/tmp")):
        pytest.skip("this Python lies in the folder that the test hides")
    session = check(run([python, "-c", SESSION, kept / "tiny.tuned"], MOUNTS[what]))
    expected = "refused" if what == "no /proc" else "ran 2"
    assert session.stdout.startswith(expected), session.stderr
    command = [python, "-m", "autotune", "run", kept / "tiny.onnx", "--trials", "1", "--log", kept / "t.db", "--quiet"]
    check(run([*command, "--out", kept / "new.tuned"], MOUNTS[what], XDG_CACHE_HOME=str(kept / "cache")))


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(tmp_path, closed):
    open_log(tmp_path / "t.db").close()
    command = f'"$@" {closed}; echo "code $?" > {tmp_path}/code'
    shell = [
        "bash",
        "-c",
        command,
        "bash",
        sys.executable,
        "-m",
        "autotune",
        "log",
        "stats",
        "--log",
        tmp_path / "t.db",
    ]
    subprocess.run(list(map(str, shell)), env=environment(), capture_output=True, check=True, timeout=120)
    assert (tmp_path / "code").read_text() == "code 0\n"
    assert (tmp_path / "t.db").read_bytes()[:6] == b"SQLite"  # no output went into it


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"TERM": ""},
        {"TERM": "dumb", "LC_ALL": "xx_YY.FOO"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"},
        {"HOME": ""},
        {"COLUMNS": "0", "LINES": "x"},
    ],
)
def test_odd_environments_are_no_error(tmp_path, variables):
    command = [sys.executable, "-m", "autotune", "log", "stats", "--log", tmp_path / "t×.db"]
    done = check(run(command, **variables))
    assert done.returncode in (0, 1)


def test_without_a_home_folder_nothing_is_kept_and_the_log_has_to_be_named(monkeypatch, tiny):
    """``~`` stays as it is where neither HOME nor the system's list of users knows a home."""
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: Path("~/.cache", name))
    monkeypatch.setattr(platformdirs, "user_data_dir", lambda name: f"~/.local/share/{name}")
    with pytest.raises(UsageError, match=r"no home folder, .* give --log FILE"):
        default_log()
    assert cache_folder().is_absolute()
    remember_model(tiny.artifact, tiny.model)
    assert remembered_model("0" * 64) is None
    assert not Path("~").exists()
