"""Wrong flags, names, shapes and paths: every answer is one line, names the fix, and makes nothing."""

import sys

import pytest

from autotune.backends.cuda.driver import Driver
from autotune.cli.main import main
from schedules.vocabulary.errors import InstallError
from tests.autotune_tests.fakes import fake_device
from tests.autotune_tests.tiny import save_tiny
from tuning_logs.sql_store import open_log


@pytest.fixture
def told(tmp_path, monkeypatch, capsys):
    """``told(arguments…)`` → (exit code, the one line on stderr) in a folder with a model."""
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "tiny.onnx")

    def call(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("tune: ")
        assert said.err.count("\n") == 1
        return code, said.err

    return call


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["tasks", "tiny.onnx", "--input", "dat:1x16x8x8"], "did you mean 'data'?"),
        (["tasks", "tiny.onnx", "--input", "data:1x16x8"], "has 3 dimensions"),
        (["tasks", "tiny.onnx", "--input", "data:1x17x8x8"], "does not fit"),
        (["tasks", "tiny.onnx", "--input", "data"], "--input data:1x3x224x224"),
        (["tasks", "tiny.onnx", "--thread", "2"], "--threads"),
        (["run", "tiny.onnx", "--cost-model", "bosted"], "did you mean 'boosted'?"),
        (["run", "tiny.onnx", "--evaluator", "fixd"], "did you mean 'fixed'?"),
        (["run", "tiny.onnx", "--searcher", "adaptiv"], "did you mean 'adaptive'?"),
        (["run", "tiny.onnx", "--allocator", "share-per-secnd"], "did you mean 'share-per-second'?"),
        (["run", "tiny.onnx", "--effort", "ful"], "did you mean 'full'?"),
        (["run", "tiny.onnx", "--target", "cude"], "did you mean 'cuda'?"),
        (["run", "tiny.onnx", "--target", '{"isa": "avx1024"}'], "this CPU has"),
        (["run", "tiny.onnx", "--target", '{"ISA": "avx2"}'], '\'{"isa": "avx2"}\''),
        (["run", "tiny.onnx", "--target", '{"kind": "cuda"}'], '"arch": "sm_90"'),
        (["run", "tiny.onnx", "--trials", "many"], "--trials many: must be a whole number; 'tune run --help'"),
        (["run", "tiny.onnx", "--trials", "-3"], "--trials -3: must be at least 0"),
        (["run", "tiny.onnx", "--threads", "0"], "give 1 to"),
        (["run", "tiny.onnx", "--threads", "9999"], "give 1 to"),
        (["run", "tiny.onnx", "--lanes", "gpu"], "give cpu, cpu:2x1"),
        (["run", "tiny.onnx", "--lanes", "cpu:99x99"], "ask for fewer"),
        (["run", "tiny.onnx", "--until", "200%"], "write for example 5%"),
        (["run", "tiny.onnx", "--rpc", "nowhere"], "--rpc 127.0.0.1:9190:board"),
        (["run", "tiny.onnx", "--frozen", "--cluster", "local"], "leave one out"),
        (["run"], "'MODEL'; 'tune run --help'"),
        (["tasks", "tiny.onnx", "--input", "data=1x16x8x8"], "--input data:1x3x224x224"),
        (["bench", "m.tuned", "--against", "onnxruntim"], "did you mean 'onnxruntime'?"),
        (["bench", "m.tuned", "--rounds", "0"], "at least 1"),
        (["log", "stat"], "did you mean 'stats'?"),
        (["log", "show"], "'TASK'; 'tune log show --help'"),
        (["log", "export", "x.jsonl", "--format", "jsn"], "did you mean 'jsonl'?"),
        (["log", "gc", "--drop", "failed", "--older-than", "yesterday"], "write for example 90s"),
        (["replay", "gone.npz", "--searcher", "rnd"], "did you mean 'random'?"),
        (["replay", "gone.npz", "--seeds", "0"], "must be at least 1"),
        (["replay", "gone.npz", "--courses", "foo"], "--courses foo: unknown; choose one of"),
        (["bench", "m.tuned", "--clients", "9" * 5000], "not a whole number from 1 to"),
        (["report", "m.tuned", "--bench", "gone.json"], "tune bench --json"),
        (["report", "m.tuned", "--bench", "tiny.onnx"], "tune bench --json"),
        (["devices", "extra"], "'tune devices --help'"),
        (["run", "tiny.onnx", "--budget", "-1s"], "90s, 5m or 1m30s"),
        (["run", "tiny.onnx", "--events", "no/such/folder/events"], "name another --events"),
        (["reprt", "m.tuned"], "did you mean 'report'?"),
        (["kernels", "m.tuned", "--emt", "asm"], "--emit"),
    ],
)
def test_usage(told, arguments, hint):
    code, said = told(*arguments)
    assert code == 2
    assert hint in said


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["report", "gone.tuned"], "tune run MODEL"),
        (["export", "gone.tuned"], "tune run MODEL"),
        (["kernels", "gone.tuned", "--explain"], "tune run MODEL"),
        (["report", "tiny.onnx"], "tune run MODEL"),
        (["lanes", "gone.tuned"], "tune run MODEL"),
        (["bench", "gone.tuned"], "tune run MODEL"),
        (["verify", "tiny.onnx", "gone.tuned"], "tune run MODEL"),
        (["run", "tiny.onx", "--quiet"], "did you mean 'tiny.onnx'?"),
        (["run", "away.onnx", "--quiet"], "give the path of an ONNX file"),
        (["run", ".", "--quiet"], "is not a file; give the path of an ONNX file"),
        (["tasks", "tiny.onx"], "did you mean 'tiny.onnx'?"),
        (["run", "tiny.onnx", "--quiet", "--out", "tiny.onnx"], "name another --out"),
        (["run", "tiny.onnx", "--quiet", "--out", "tiny.onnx/x"], "name another --out"),
        (["run", "tiny.onnx", "--quiet", "--log", "tiny.onnx"], "give another --log"),
        (["run", "tiny.onnx", "--quiet", "--log", "mysql://here"], "a path or a postgresql:// URL"),
        (["log", "stats", "--log", "gone.db"], "give another --log"),
        (["log", "merge", "gone.db"], "give another --log"),
        (["log", "explain", "tiny.onx"], "did you mean 'tiny.onnx'?"),
        (["log", "import", "gone.jsonl"], "gone.jsonl does not exist; give a file made by 'tune log export'"),
        (["log", "import", "/dev/null"], "/dev/null is not a file; give a file made by 'tune log export'"),
        (["log", "import", "tiny.onnx", "--format", "metaschedule"], "tiny.onnx is not a folder; give MetaSchedule's"),
        (["replay", "tiny.onnx"], "is not a trace, or it is damaged"),
        (["replay", "gone.npz"], "gone.npz does not exist; give a trace"),
    ],
)
def test_paths(told, arguments, hint, tmp_path, monkeypatch):
    fake_device(monkeypatch, forks=True)  # nothing is measured, so no workers are started
    code, said = told(*arguments)
    assert code == 1
    assert hint in said
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.onnx"]


@pytest.mark.parametrize("command", [["build", "tiny.onnx", "--quiet"], ["run", "tiny.onnx", "--frozen", "--quiet"]])
def test_a_build_makes_no_log(told, command, tmp_path):
    code, said = told(*command, "--log", "gone.db")
    assert code == 3
    assert "give another --log" in said
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.onnx"]


def test_a_log_s_task_is_named_by_its_key(told, tmp_path):
    open_log(tmp_path / "own.db").close()
    code, said = told("log", "show", "zzz", "--log", "own.db")
    assert code == 2
    assert "'tune log list' shows their keys" in said


def test_a_file_without_a_record_is_no_log(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("hello\n")
    assert main(["log", "import", str(tmp_path / "notes.txt"), "--log", str(tmp_path / "own.db")]) == 1
    assert "give what 'tune log export' wrote" in capsys.readouterr().err


def test_what_gc_drops_is_named(tmp_path, capsys):
    open_log(tmp_path / "own.db").close()
    assert main(["log", "gc", "--drop", "fail", "--log", str(tmp_path / "own.db")]) == 2
    assert "choose some of failed, dominated, damaged" in capsys.readouterr().err


def test_without_ray_the_extra_is_named(told, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, said = told("run", "tiny.onnx", "--quiet", "--cluster", "local")
    assert code == 1
    assert "pip install 'tune-compiler[cluster]'" in said


def test_a_machine_without_nvidia_s_driver_says_so():
    class Bindings:
        def cuInit(self, flags):  # noqa: N802  # NVIDIA's name
            raise RuntimeError("libcuda.so.1 was not found")

    with pytest.raises(InstallError, match="driver is not installed; install it, or use a machine that has it"):
        Driver(Bindings())


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--task", "fused_convd"], "did you mean 'fused_conv"),
        (["--task", "0000000000"], "'tune kernels ARTIFACT' lists them"),
        (["--emit", "llmv"], "did you mean 'llvm'?"),
        (["--explain", "--emit", "asm"], "leave out --task and --emit"),
    ],
)
def test_kernels(told, tiny_built, arguments, hint):
    code, said = told("kernels", tiny_built.artifact, *arguments)
    assert code == 2
    assert hint in said


def test_an_input_s_name_is_guessed_in_python_too(tiny_built):
    import numpy as np

    from autotune.runtime.session import InferenceSession
    from schedules.vocabulary.errors import UsageError

    session, x = InferenceSession(tiny_built.artifact), np.zeros((1, 16, 8, 8), np.float32)
    with pytest.raises(UsageError, match=r"no input 'date'; did you mean 'data'\?"):
        session.run(None, {"data": x, "date": x})
    with pytest.raises(UsageError, match=r"no output 'score'; did you mean 'scores'\?"):
        session.run(["score"], {"data": x})
    with pytest.raises(UsageError, match=r"built for \(1, 16, 8, 8\)"):
        session.run(None, {"data": x[0]})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown(shell, capsys, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    with pytest.raises(SystemExit) as ended:  # typer's own exit
        main(["--show-completion", shell])
    assert ended.value.code == 0
    assert "tune" in capsys.readouterr().out
