"""The command line: what it prints where, which exit code it gives, and how it answers mistakes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from autotune.backends.cpu import cpu_backend
from autotune.build import one_lane
from autotune.cli import main as cli
from autotune.cli.arguments import parse_seconds, parse_target, split_names
from autotune.cli.main import main
from autotune.tuning import tune as tuning
from autotune.tuning.result import Result
from schedules.errors import ArtifactError, AutotuneError, MissingRecordError, UsageError, VerificationError
from schedules.target import Target
from tests.autotune_tests.fakes import FakeMeasurer, if_it_lowers
from tests.autotune_tests.tiny import save_tiny

COMMANDS = ("run", "build", "bench", "verify", "tasks", "kernels", "devices", "pack", "log")
LOG_COMMANDS = ("stats", "list", "show", "explain", "export", "import", "merge", "verify", "gc")
FAST = ("--threads", "1", "--searcher", "random", "--trials", "4", "--quiet")


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


@pytest.fixture
def answer(capsys):
    """``answer(arguments…)`` → (exit code, stdout, stderr) of ``main`` in this process."""

    def call(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def faked(monkeypatch, tmp_path):
    """No device is measured; the model is in the current folder."""
    monkeypatch.setattr(cpu_backend, "LocalMeasurer", lambda *_, **__: FakeMeasurer(if_it_lowers))
    monkeypatch.setattr(one_lane, "median_s", lambda *_: 1e-3)
    monkeypatch.chdir(tmp_path)
    return save_tiny(tmp_path / "tiny.onnx")


def one_line(text):
    return text.startswith("tune: ") and text.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("1m30s", 90), ("2h", 7200), ("1h1m1s", 3661), ("60", 60), ("0.5", 0.5), ("1.5s", 1.5)],
)
def test_budgets(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "-5s", "5x", "s", "m", "5 m", "1s1m", "inf", "nan", "1e400", "٣s1x"])
def test_bad_budgets_are_told_what_to_write(text):
    with pytest.raises(UsageError, match="90s, 5m or 1m30s"):
        parse_seconds(text)


def test_targets():
    assert parse_target("host") == {}
    assert parse_target('{"isa": "avx2"}') == {"isa": "avx2"}
    for text in ("{", "[]", '{"arch": "sm_90"}'):
        with pytest.raises(UsageError, match="avx2"):
            parse_target(text)


def test_cuda_targets():
    assert parse_target('{"kind": "cuda", "arch": "sm_80"}') == {"target": Target.cuda("sm_80")}
    assert parse_target('{"kind": "cuda", "arch": "sm_90", "multiprocessors": 114}')["target"].threads == 114
    for text in ('{"kind": "cuda"}', '{"kind": "cuda", "arch": "sm_90", "isa": "avx2"}'):
        with pytest.raises(UsageError, match="sm_90"):
            parse_target(text)
    with pytest.raises(UsageError, match="sm_86"):
        parse_target('{"kind": "cuda", "arch": "sm_50"}')


def test_names_are_split_at_commas():
    assert split_names("a, b,") == ["a", "b"]
    assert split_names("") == []


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
        (["rn"], "Did you mean 'run'?"),
        (["run"], "Missing argument 'MODEL'"),
        (["run", "m.onnx", "--budgt", "5s"], "--budget"),
        (["run", "m.onnx", "--budget", "soon"], "90s, 5m or 1m30s"),
        (["run", "m.onnx", "--effort", "heroic"], "quick, standard, full"),
        (["run", "m.onnx", "--searcher", "randm"], "did you mean 'random'?"),
        (["run", "m.onnx", "--allocator", "robin"], "did you mean 'round-robin'?"),
        (["run", "m.onnx", "--trials", "many"], "--trials"),
        (["run", "m.onnx", "--input", "data"], "--input data:1x3x224x224"),
        (["run", "m.onnx", "--target", "toaster"], "'host'"),
        (["run", "m.onnx", "--threads", "99999"], "threads is 99999"),
        (["bench", "m.tuned", "--against", "onnxrntime"], "did you mean 'onnxruntime'?"),
        (["bench", "m.tuned", "--rounds", "0"], "at least 1"),
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
    monkeypatch.setattr(cpu_backend, "LocalMeasurer", lambda *_, **__: FakeMeasurer())
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


def test_run_then_look_at_everything(answer, faked):
    code, out, err = answer("run", "tiny.onnx", "--log", "t.db", *FAST)
    assert (code, err) == (0, "")
    assert "tiny.tuned" in out
    assert "outputs match onnxruntime" in out
    code, out, _ = answer("run", "tiny.onnx", "--log", "t.db", *FAST, "--json")
    data = json.loads(out)
    assert (code, data["measured_trials"], data["reused_records"], data["artifact"]) == (0, 0, 4, "tiny.tuned")
    for arguments in (
        ("tasks", "tiny.onnx", "--threads", "1", "--log", "t.db"),
        ("kernels", "tiny.tuned"),
        ("verify", "tiny.tuned", "tiny.onnx"),
    ):
        code, out, err = answer(*arguments)
        assert (code, err) == (0, ""), arguments
        assert out
        code, out, err = answer(*arguments, "--json")
        assert (code, err) == (0, ""), arguments
        assert isinstance(json.loads(out), dict)


def test_progress_is_on_stderr_in_plain_lines(answer, faked):
    code, out, err = answer("run", "tiny.onnx", "--log", "t.db", *FAST[:-1], "--json")
    assert code == 0
    assert isinstance(json.loads(out), dict)
    assert "importing the model" in err
    assert "stopped: 4 trials were measured" in err
    assert "\x1b" not in err


def test_frozen_run_and_build_exit_3(answer, faked):
    for arguments in (("run", "tiny.onnx", "--frozen"), ("build", "tiny.onnx")):
        code, out, err = answer(*arguments, "--threads", "1", "--log", "t.db", "--quiet")
        assert (code, out) == (3, "")
        assert one_line(err)
        assert "tune first or merge a log" in err


def test_verification_failure_exits_4_and_still_says_how_far(answer, tiny, tmp_path):
    other = save_tiny(tmp_path / "other.onnx", seed=1, two_outputs=True)
    code, out, err = answer("verify", tiny.artifact, other, "--json")
    assert code == 4
    assert json.loads(out)["passed"] is False
    assert one_line(err)
    assert "differs from onnxruntime" in err


def test_a_bundle_is_read_again_only_to_be_explained(answer, tmp_path, monkeypatch):
    (tmp_path / "several").mkdir()
    (tmp_path / "several" / "manifest.json").write_text('{"format": 4}')  # whoever reads it complains
    part = Result("tiny.onnx", tmp_path / "several" / "part-0", "cpu", 1, 1)
    whole = replace(part, artifact=tmp_path / "several", parts=(part,))
    monkeypatch.setattr("autotune.tuning.tune.tune", lambda *_: whole)
    assert answer("run", "tiny.onnx", "--quiet")[0] == 0
    code, _, err = answer("run", "tiny.onnx", "--quiet", "--explain")
    assert code == 1
    assert "part-0 is not an artifact" in err


def test_interrupted_run_exits_130_with_its_artifact(answer, faked, monkeypatch):
    measurer = FakeMeasurer()

    def stop(candidate):
        raise KeyboardInterrupt

    measurer.answer = stop
    monkeypatch.setattr(cpu_backend, "LocalMeasurer", lambda *_, **__: measurer)
    code, out, _ = answer("run", "tiny.onnx", "--log", "t.db", *FAST, "--json")
    assert code == 130
    assert json.loads(out)["interrupted"] is True
    assert answer("verify", "tiny.tuned", "tiny.onnx")[0] == 0


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


def test_the_log_comes_from_the_environment(answer, faked, monkeypatch):
    monkeypatch.setenv("TUNE_LOG", "env.db")
    assert answer("run", "tiny.onnx", *FAST)[0] == 0
    assert answer("log", "stats")[1].startswith(str(faked.parent / "env.db"))


def test_kernels_are_shown_in_every_form(answer, tiny_built):
    code, out, _ = answer("kernels", tiny_built.artifact, "--json")
    first = json.loads(out)["kernels"][0]
    signs = {"tir": "T.prim_func", "llvm": "define", "asm": "ret"}
    for form, sign in signs.items():
        for task in (first["key"], first["key"][:6], first["name"]):
            code, out, _ = answer("kernels", tiny_built.artifact, "--task", task, "--emit", form)
            assert code == 0
            assert first["key"] in out.splitlines()[0]
            assert sign in out


def test_wrong_kernels_are_told(answer, tiny_built):
    code, _, err = answer("kernels", tiny_built.artifact, "--task", "fused_conv2d_ad_relu")
    assert code == 2
    assert "did you mean 'fused_conv2d_add_relu'?" in err
    code, _, err = answer("kernels", tiny_built.artifact, "--emit", "ptx")
    assert code == 2
    assert "kernels for llvm have no form 'ptx'; give tir or llvm or asm" in err
    code, _, err = answer("kernels", tiny_built.artifact, "--emit", "hex")
    assert code == 2
    assert "choose one of asm, cuda, llvm, ptx, tir" in err
    code, _, err = answer("kernels", tiny_built.artifact, "--task", "")
    assert code == 2
    assert "several" in err


def test_devices(answer):
    code, out, _ = answer("devices", "--json")
    cpu = json.loads(out)["cpu"]
    assert code == 0
    assert cpu["threads"] >= 1
    assert cpu["peak_gflops"] > 0
    code, out, _ = answer("devices")
    assert code == 0
    assert "GFLOPS" in out


def test_tasks_tell_where_the_best_record_came_from(answer, faked):
    answer("run", "tiny.onnx", "--log", "t.db", *FAST)
    code, out, _ = answer("tasks", "tiny.onnx", "--threads", "1", "--log", "t.db", "--json")
    report = json.loads(out)
    assert code == 0
    known = [task for task in report["tasks"] if task["best_us"] is not None]
    assert known
    for task in known:
        assert task["source"]["host"]
        assert task["source"]["when"] > 1e9
        assert task["roofline_share"] == pytest.approx(task["bound_us"] / task["best_us"])
    assert all(task["missing"] for task in report["tasks"] if task["tunable"] and task["best_us"] is None)


def test_tasks_without_any_log_make_none(answer, faked, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    code, out, _ = answer("tasks", "tiny.onnx", "--threads", "1")
    assert code == 0
    assert "no record" in out
    assert not (tmp_path / "data").exists()


def test_logging_is_quiet_unless_asked(monkeypatch, answer, caplog):
    import logging

    def chat(*_):
        logging.getLogger("autotune.tuning.result").info("details")
        raise ArtifactError("x")

    monkeypatch.setattr(tuning, "tune", chat)
    assert "details" not in answer("run", "m.onnx", "-q")[2]
    assert "tune: details" in answer("-v", "run", "m.onnx", "-q")[2]


def test_a_bad_tvm_pair_is_refused_before_tvm_is_loaded(monkeypatch, answer):
    from schedules.errors import InstallError

    def refuse():
        raise InstallError("a bad pair; run: pip install")

    monkeypatch.setattr(cli, "check_versions", refuse)
    code, _, err = answer("devices")
    assert (code, err) == (1, "tune: a bad pair; run: pip install\n")


def test_the_entry_point_runs_as_a_process(tmp_path):
    done = tune("run", tmp_path / "gone.onnx", "--quiet")
    assert (done.returncode, done.stdout) == (1, "")
    assert one_line(done.stderr)
