"""The command line as a whole: help, exit codes, and how it answers mistakes."""

import errno
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from autotune.cli import main as cli
from autotune.cli.main import main
from autotune.measure import local_measurer
from autotune.tuning import tune as tuning
from schedules.vocabulary.errors import ArtifactError, AutotuneError, MissingRecordError, UsageError, VerificationError
from tests.autotune_tests.cli_tests.lines import one_line
from tests.autotune_tests.fakes import FakeMeasurer

COMMANDS = ("run", "build", "bench", "verify", "tasks", "kernels", "devices", "pack", "log")
LOG_COMMANDS = ("stats", "list", "show", "explain", "export", "import", "merge", "verify", "gc")


def tune(*arguments, **environment):
    """A real process."""
    command = [
        sys.executable,
        "-c",
        "import sys; from autotune.cli.main import main; sys.exit(main())",
        *map(str, arguments),
    ]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **environment}
    )


@pytest.mark.parametrize("command", [(name,) for name in COMMANDS] + [("log", name) for name in LOG_COMMANDS])
def test_every_command_has_help_with_an_example(answer, command):
    code, out, err = answer(*command, "--help")
    assert (code, err) == (0, "")
    assert command == ("log",) or f"tune {' '.join(command)}" in " ".join(out.split("Example:")[1].split())


def test_help_is_quick_because_tvm_is_not_loaded():
    loaded = "sys.exit(bool({'tvm', 'numpy', 'onnx'} & set(sys.modules)))"
    code = f"import sys; from autotune.cli.main import main; main(['--help']); {loaded}"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def test_version_says_what_matters(answer):
    code, out, _ = answer("--version")
    assert code == 0
    assert re.fullmatch(r"tune-compiler \S+ \(Python .*apache-tvm .*onnx .*\)\n", out)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["rn"], "rn: no such command; did you mean 'run'? 'tune --help'"),
        (["run"], "missing argument 'MODEL'"),
        (["run", "m.onnx", "--budgt", "5s"], "--budgt: no such option; did you mean '--budget'?"),
        (["run", "m.onnx", "--nonsense"], "--nonsense: no such option; 'tune run --help'"),
        (["run", "m.onnx", "--budget", "soon"], "90s, 5m or 1m30s"),
        (["run", "m.onnx", "--effort", "heroic"], "quick, standard, full"),
        (["run", "m.onnx", "--searcher", "randm"], "did you mean 'random'?"),
        (["run", "m.onnx", "--allocator", "robin"], "did you mean 'round-robin'?"),
        (["run", "m.onnx", "--trials", "many"], "--trials many: must be a whole number"),
        (["run", "m.onnx", "--trials=many"], "--trials=many: must be a whole number"),
        (["run", "m.onnx", "--trials", "-1"], "--trials -1: must be at least 0"),
        (
            ["run", "m.onnx", "--precision", "fp16"],
            "--precision fp16: CPU kernels have no products of float16; choose bf16",
        ),
        (
            ["run", "m.onnx", "--precision", "tf32:0"],
            "--precision tf32:0: CPU kernels have no products of TF32; choose bf16 or --target cuda",
        ),
        (["run", "m.onnx", "--precision", "fp8"], "--precision fp8: unknown; "),
        (["run", "m.onnx", "--import-memory", "lots"], "--import-memory lots: not a size"),
        (["run", "m.onnx", "--until", "130%"], "--until 130%: not a percentage"),
        (["run", "m.onnx", "--input", "data"], "--input data:1x3x224x224"),
        (["run", "m.onnx", "--target", "toaster"], "--target toaster: unknown; give host, cuda"),
        (["run", "m.onnx", "--threads", "99999"], "--threads 99999: this process may run on"),
        (["bench", "m.tuned", "--against", "onnxrntime"], "did you mean 'onnxruntime'?"),
        (["bench", "m.tuned", "--rounds", "0"], "at least 1"),
        (["run", "m.onnx", "--seed", "-1"], "--seed -1: must be at least 0"),
        (["bench", "m.tuned", "--seed", "-1"], "--seed -1: must be at least 0"),
        (["verify", "m.tuned", "m.onnx", "--seed", "-1"], "--seed -1: must be at least 0"),
        (["replay", "t.npz", "--seed", "-1"], "--seed -1: must be at least 0"),
        (["log", "show", "task", "--count", "-1"], "--count -1: must be at least 0"),
        (["log", "gc", "--drop", "everything", "--log", "t.db"], "failed, dominated, damaged"),
        (["log", "gc", "--drop", "failed", "--older-than", "never", "--log", "t.db"], "--older-than"),
    ],
)
def test_usage_errors_are_one_line_with_the_fix(answer, arguments, hint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "t.db" in arguments:
        main(["log", "merge", str(_empty_log(tmp_path)), "--log", "t.db"])
    code, out, err = answer(*arguments)
    assert (code, out) == (2, "")
    assert one_line(err), err
    assert hint in err


def _empty_log(folder):
    from tuning_logs.sql_store import open_log

    open_log(folder / "empty.db").close()
    return folder / "empty.db"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["run", "gone.onnx"], "give the path of an ONNX file"),
        (["tasks", "gone.onnx"], "give the path of an ONNX file"),
        (["bench", "gone.tuned"], "tune run MODEL"),
        (["kernels", "gone.tuned"], "tune run MODEL"),
        (["verify", "gone.tuned", "gone.onnx"], "tune run MODEL"),
        (["log", "stats", "--log", "gone.db"], "give another --log"),
        (["log", "import", "gone.jsonl", "--log", "new.db"], "tune log export"),
        (["log", "merge", "gone.db", "--log", "new.db"], "give another --log"),
    ],
)
def test_missing_files_are_one_line_and_nothing_is_made(answer, arguments, hint, tmp_path, monkeypatch):
    monkeypatch.setattr(local_measurer, "LocalMeasurer", lambda *_, **__: FakeMeasurer())
    monkeypatch.chdir(tmp_path)
    code, out, err = answer(*arguments, *(["--quiet"] if arguments[0] == "run" else []))
    assert (code, out) == (1, "")
    assert one_line(err), err
    assert hint in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AutotuneError("x"), 1),
        (ArtifactError("x"), 1),
        (UsageError("x"), 2),
        (MissingRecordError("x"), 3),
        (VerificationError("two\nlines"), 4),
        (KeyboardInterrupt(), 130),
        (MemoryError(), 1),
        (OSError(errno.ENOSPC, "No space left on device", "/tmp/x"), 1),
    ],
)
def test_exit_codes(answer, monkeypatch, error, code):
    def fail(*_):
        raise error

    monkeypatch.setattr(tuning, "tune", fail)
    got, out, err = answer("run", "m.onnx", "--quiet")
    assert (got, out) == (code, "")
    assert one_line(err)


def test_a_bug_keeps_its_traceback(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(tuning, "tune", fail)
    with pytest.raises(ZeroDivisionError):
        main(["run", "m.onnx", "--quiet"])


def test_ctrl_c_before_anything_is_one_line(tmp_path):
    program = (
        "import sys, time, autotune.tuning.tune as p\n"
        "def wait(*_):\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "p.tune = wait\nfrom autotune.cli.main import main\nsys.exit(main(['run', 'm.onnx', '--quiet']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "tune: interrupted\n")


def test_a_reader_that_leaves_early_is_no_error(tiny_built):
    program = f"{sys.executable} -c 'import sys; from autotune.cli.main import main; sys.exit(main())'"
    shell = f"set -o pipefail; {program} kernels {tiny_built.artifact} --emit asm | head -1 >/dev/null"
    done = subprocess.run(["bash", "-c", shell], check=False, capture_output=True, text=True)
    assert done.stderr == ""


def test_logging_is_quiet_unless_asked(monkeypatch, answer, caplog):
    import logging

    def chat(*_):
        logging.getLogger("autotune.tuning.result").info("details")
        raise ArtifactError("x")

    monkeypatch.setattr(tuning, "tune", chat)
    assert "details" not in answer("run", "m.onnx", "-q")[2]
    assert "tune: details" in answer("-v", "run", "m.onnx", "-q")[2]


def test_a_bad_tvm_pair_is_refused_before_tvm_is_loaded(monkeypatch, answer):
    from schedules.vocabulary.errors import InstallError

    def refuse():
        raise InstallError("a bad pair; run: pip install")

    monkeypatch.setattr(cli, "check_versions", refuse)
    code, _, err = answer("devices")
    assert (code, err) == (1, "tune: a bad pair; run: pip install\n")


def test_the_entry_point_runs_as_a_process(tmp_path):
    done = tune("run", tmp_path / "gone.onnx", "--quiet")
    assert (done.returncode, done.stdout) == (1, "")
    assert one_line(done.stderr)
