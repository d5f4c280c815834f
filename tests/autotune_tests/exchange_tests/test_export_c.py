"""A C library of an artifact gives the session's outputs without Python and TVM, and refuses what it cannot do."""

import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from autotune.artifact.directory import read_artifact
from autotune.artifact.manifest import MANIFEST, sealed
from autotune.backends.cpu.linking import CORE_OPTIONS, SHARED
from autotune.cli.main import main
from autotune.exchange import export_c as module
from autotune.exchange.export_c import export_c, write_cases
from autotune.host.machine import read_host
from autotune.runtime.session import InferenceSession
from autotune.validation.verify import random_inputs
from schedules.errors import ArtifactError, UsageError
from tests.autotune_tests.composites import three_segments, two_batches
from tests.autotune_tests.tiny import build_untuned
from tests.models import save

LIBC = ("linux-vdso", "libc.so", "libm.so", "libpthread", "ld-linux", "libdl", "librt")
BARE = {"PATH": "/nonexistent"}
TIMEOUT_S = 120.0


def output_of(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def binding(folder, name):
    """The example for Python, as a module."""
    spec = importlib.util.spec_from_file_location(f"{name}_example", folder / "examples" / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def exported(tiny_built, tmp_path_factory):
    out = tmp_path_factory.mktemp("c") / "lib"
    assert main(["export", str(tiny_built.artifact), "--format", "c", "--out", str(out), "--name", "tiny"]) == 0
    return out


def test_the_self_test_passes_where_there_is_nothing_else(exported):
    assert "3 cases, all as recorded" in output_of([exported / "selftest/selftest"], env=BARE)


def test_the_library_needs_the_c_library_alone_and_shows_its_own_versioned_functions(exported):
    library = exported / "lib/libtiny.so"
    needed = [line.split()[0] for line in output_of(["ldd", library]).splitlines()]
    assert [name for name in needed if not Path(name).name.startswith(LIBC)] == []
    symbols = {line.split()[-1] for line in output_of(["nm", "-D", "--defined-only", library]).splitlines()}
    assert {"tiny_open@@TINY_1", "tiny_run@@TINY_1"} < symbols
    assert {symbol for symbol in symbols if not symbol.startswith("tiny_")} == {"TINY_1"}
    assert library.stat().st_size < 1 << 20


def test_the_binding_for_python_gives_the_session_s_outputs(tiny_built, exported):
    x = np.random.default_rng(5).standard_normal((1, 16, 8, 8)).astype(np.float32)
    session = InferenceSession(tiny_built.artifact)
    model = binding(exported, "tiny").Model()
    for ours, theirs in zip(model.run(x), session.run(None, {"data": x}), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    model.close()


def test_another_library_s_weights_are_refused(exported, tmp_path):
    moved = shutil.copytree(exported, tmp_path / "moved")
    weights = bytearray((moved / "lib/tiny.weights").read_bytes())
    weights[0] ^= 1
    (moved / "lib/tiny.weights").write_bytes(weights)
    with pytest.raises(RuntimeError, match="not the weights of this library"):
        binding(moved, "tiny").Model()
    (moved / "lib/tiny.weights").unlink()
    with pytest.raises(RuntimeError, match="the file of weights cannot be read"):
        binding(moved, "tiny").Model()


def test_the_self_test_notices_a_wrong_output(tiny_built, exported, tmp_path):
    feed = {"data": np.ones((1, 16, 8, 8), np.float32)}
    scores, features = InferenceSession(tiny_built.artifact).run(None, feed)
    cases = tmp_path / "wrong.cases"
    write_cases(cases, iter([(0, [feed["data"], scores + 0.01, features])]))
    done = subprocess.run([exported / "selftest/selftest", cases], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "failed: an output differs from the recorded one\n")


def test_it_agrees_with_onnxruntime(tiny_built, exported, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    reference = onnxruntime.InferenceSession(tiny_built.model.read_bytes(), providers=["CPUExecutionProvider"])
    cases = []
    for seed in range(3):
        feed = random_inputs(read_artifact(tiny_built.artifact).inputs, seed)
        cases.append((0, [*feed.values(), *reference.run(None, feed)]))
    write_cases(tmp_path / "reference.cases", iter(cases))
    output_of([exported / "selftest/selftest", tmp_path / "reference.cases", "0.0001"])


def test_several_sets_of_shapes_are_in_one_library(measurer, tmp_path):
    batches = two_batches(tmp_path, measurer)
    out = export_c(batches.artifact, tmp_path / "out", "batches")
    output_of([out / "selftest/selftest"], env=BARE)
    session, example = InferenceSession(batches.artifact), binding(out, "batches")
    for number, rows in enumerate((1, 8)):
        x = np.random.default_rng(rows).standard_normal((rows, 24)).astype(np.float32)
        model = example.Model(number=number)
        (expected,) = session.run(None, {"rows": x})
        np.testing.assert_array_equal(model.run(x)[0], expected)
        model.close()


def test_recurrent_models_are_exported(measurer, tmp_path):
    save("tiny_lstm", tmp_path / "lstm.onnx")
    artifact = build_untuned(tmp_path / "lstm.onnx", tmp_path / "lstm.tuned", measurer)
    out = export_c(artifact, tmp_path / "out")
    output_of([out / "selftest/selftest"], env=BARE)


def test_the_example_compiles_without_a_warning_and_runs(exported, tmp_path):
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    where = [f"-I{exported / 'include'}", f"-L{exported / 'lib'}", "-ltiny", f"-Wl,-rpath,{exported / 'lib'}"]
    output_of(["gcc", *flags, exported / "examples/tiny.c", *where, "-o", tmp_path / "example"])
    assert "makes scores: 40 bytes of float32" in output_of([tmp_path / "example"], env=BARE)


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="there is no pkg-config")
def test_pkg_config_knows_how_to_link(exported):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(exported / "lib/pkgconfig")}
    assert "-ltiny" in output_of(["pkg-config", "--libs", "tiny"], env=environment)


def own_cpus():
    """Thread → the logical CPUs that it may use."""
    return {task.name: sorted(os.sched_getaffinity(int(task.name))) for task in Path("/proc/self/task").iterdir()}


@pytest.mark.skipif(len(read_host().cores) < 2, reason="needs two cores")
def test_streams_take_the_cores_in_turn(exported):
    library, folder = ctypes.CDLL(str(exported / "lib/libtiny.so")), str(exported / "lib/tiny.weights").encode()
    model = ctypes.c_void_p()
    paths = (ctypes.c_char_p * 2)(folder, None)
    assert library.tiny_open(paths, ctypes.byref(model), None) == 0
    workers, streams = [], []
    for threads in (2, 1, 2):  # the caller is a stream's first thread
        before, stream = own_cpus(), ctypes.c_void_p()
        assert library.tiny_open_stream(model, (ctypes.c_int64 * 2)(threads, 0), ctypes.byref(stream), None) == 0
        streams.append(stream)
        if threads > 1:
            ((cpu,),) = await_pinned(before)
            workers.append(cpu)
    for stream in streams:
        library.tiny_close_stream(stream)
    library.tiny_close(model)
    cores = read_host().cores
    assert workers == [cores[1], cores[4 % len(cores)]]


def await_pinned(before):
    """The CPUs of every thread that was started since, once each is pinned."""
    for _ in range(100):
        found = [cpus for task, cpus in own_cpus().items() if task not in before]
        if found and all(len(cpus) == 1 for cpus in found):
            break
        time.sleep(0.05)
    return found


def test_sanitizers_find_nothing(tiny_built, tmp_path, monkeypatch):
    sanitizers = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    monkeypatch.setattr(module, "CORE_OPTIONS", (*CORE_OPTIONS, *sanitizers))
    monkeypatch.setattr(module, "SHARED", tuple(option for option in SHARED if "undefined" not in option))
    monkeypatch.setattr(module, "SELFTEST_OPTIONS", (*module.SELFTEST_OPTIONS, *sanitizers))
    out = export_c(tiny_built.artifact, tmp_path / "out", "tiny")
    assert "all as recorded" in output_of([out / "selftest/selftest"], env=BARE)


@pytest.mark.parametrize("name", ["2fast", "a-b"])
def test_a_name_that_c_does_not_take_is_refused(tiny_built, tmp_path, name):
    with pytest.raises(UsageError, match="cannot be the name of C functions"):
        export_c(tiny_built.artifact, tmp_path / "out", name)


def test_what_c_cannot_run_is_refused_in_one_line(tiny_built, measurer, tmp_path):
    segments = three_segments(tmp_path, measurer)
    with pytest.raises(ArtifactError, match="fallback partitions, which need ONNX Runtime"):
        export_c(segments.artifact, tmp_path / "out")
    copy = shutil.copytree(tiny_built.artifact, tmp_path / "old.tuned")
    (copy / "model.o").unlink()
    manifest = json.loads((copy / MANIFEST).read_text())
    del manifest["sha256"]["model.o"], manifest["seal"]
    (copy / MANIFEST).write_text(sealed(manifest))
    with pytest.raises(ArtifactError, match=r"has no model\.o; renew it"):
        export_c(copy, tmp_path / "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(ArtifactError, match="name another --out"):
        export_c(tiny_built.artifact, tmp_path / "full")


def test_the_name_is_for_c_alone(tiny_built, tmp_path, capsys):
    arguments = ["export", str(tiny_built.artifact), "--out", str(tmp_path / "x"), "--name", "tiny"]
    assert main(arguments) == 2
    assert "leave it out" in capsys.readouterr().err
