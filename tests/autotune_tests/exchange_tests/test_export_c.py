"""A C library of an artifact gives the session's outputs without Python and TVM, and refuses what it cannot do."""

import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import time
from dataclasses import replace
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
from schedules.vocabulary.errors import ArtifactError, UsageError
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
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


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


def changed(weights):
    """Contents of a file of weights that are not what was exported, by what happened to them."""
    middle = 4096 + (len(weights) - 4096) // 2 // 8 * 8
    page = weights[4096:8192]
    return {
        "a bit": weights[:middle] + bytes([weights[middle] ^ 1]) + weights[middle + 1 :],
        "words swapped": weights[:4096] + page[8:16] + page[:8] + weights[4096 + 16 :],
        "sectors swapped": weights[:4096] + page[512:1024] + page[:512] + weights[4096 + 1024 :],
        "truncated": weights[:-32],
        "appended": weights + bytes(32),
        "zeros at the end": weights[:-512] + bytes(512),
    }


@pytest.mark.parametrize("memory", [1, 2], ids=["copied", "mapped"])
def test_weights_that_were_changed_behind_their_header_are_refused(exported, tmp_path, memory):
    library, path = ctypes.CDLL(str(exported / "lib/libtiny.so")), tmp_path / "tiny.weights"
    whole = (exported / "lib/tiny.weights").read_bytes()

    def opened(content):
        path.write_bytes(content)
        text, model = ctypes.create_string_buffer(1024), ctypes.c_void_p()
        status = library.tiny_open(options(path, memory), ctypes.byref(model), text)
        library.tiny_close(model)
        return status, text.value.decode()

    assert opened(whole) == (0, "")
    for how, content in changed(whole).items():
        assert content != whole, how
        assert opened(content) == (opened(b"")[0], f"not the weights of this library: {path}"), how


def options(weights, memory):
    """``tiny_options``."""

    class Options(ctypes.Structure):
        _fields_ = (("weights", ctypes.c_char_p), ("weights_memory", ctypes.c_int))

    return ctypes.byref(Options(str(weights).encode(), memory))


def test_a_mapped_file_that_is_truncated_afterwards_is_an_error_and_no_signal(exported, tmp_path):
    library, path = ctypes.CDLL(str(exported / "lib/libtiny.so")), tmp_path / "tiny.weights"
    shutil.copyfile(exported / "lib/tiny.weights", path)
    model, stream, text = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(1024)
    assert library.tiny_open(options(path, 2), ctypes.byref(model), text) == 0
    assert library.tiny_open_stream(model, None, ctypes.byref(stream), text) == 0
    data, scores, features = (np.zeros(size, np.float32) for size in (16 * 64, 10, 32 * 64))

    def run():
        class Buffer(ctypes.Structure):
            _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t))

        inputs = Buffer(data.ctypes.data, data.nbytes)
        outputs = (Buffer * 2)(*(Buffer(array.ctypes.data, array.nbytes) for array in (scores, features)))
        return library.tiny_run(stream, ctypes.c_size_t(0), ctypes.byref(inputs), outputs, text)

    first = run()
    assert first == 0, text.value
    os.truncate(path, 4096)
    assert run() != 0
    assert text.value == b"the file of weights was truncated while it was mapped"
    library.tiny_close_stream(stream)
    library.tiny_close(model)


@pytest.mark.parametrize("feature", ["xop", "amx_fp16", "avx512_fp16", "sse4a"])
def test_a_feature_that_the_cpu_lacks_is_named_when_a_model_is_opened(tiny_built, tmp_path, monkeypatch, feature):
    if feature in read_host().flags:
        pytest.skip(f"this CPU has {feature}")
    read = module.read_artifact
    monkeypatch.setattr(module, "read_artifact", lambda path: replace(read(path), cpu=(*read(path).cpu, feature)))
    monkeypatch.setattr(module, "compile_with", without_selftest(module.compile_with))
    out = export_c(tiny_built.artifact, tmp_path / "out", "tiny")
    with pytest.raises(RuntimeError, match=f"this CPU lacks what the library needs: {feature}"):
        binding(out, "tiny").Model()


def without_selftest(compile_with):
    return lambda arguments, architecture: None if "-x" in arguments else compile_with(arguments, architecture)


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
        pinned = [cpus for task, cpus in own_cpus().items() if task not in before]
        if pinned and all(len(cpus) == 1 for cpus in pinned):
            break
        time.sleep(0.05)
    return pinned


def test_sanitizers_find_nothing(tiny_built, tmp_path, monkeypatch):
    sanitizers = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    monkeypatch.setattr(module, "CORE_OPTIONS", (*CORE_OPTIONS, *sanitizers))
    monkeypatch.setattr(module, "SHARED", tuple(option for option in SHARED if "undefined" not in option))
    monkeypatch.setattr(module, "SELFTEST_OPTIONS", (*module.SELFTEST_OPTIONS, *sanitizers))
    out = export_c(tiny_built.artifact, tmp_path / "out", "tiny")
    assert "all as recorded" in output_of([out / "selftest/selftest"], env=BARE)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *((name, "cannot be the name of C functions") for name in ("2fast", "a-b", "_a", "é", "a b", "a;b")),
        *((name, "the library's core begin with it") for name in ("tune", "TUNE", "tune_core", "Tune_x")),
        *((name, "a word of the language C") for name in ("int", "while")),
        *((name, "the system has a function") for name in ("sem", "mq", "pthread")),
        *((name, "the system has a library") for name in ("c", "m")),
        ("a" * 65, "more than 64 characters"),
    ],
)
def test_a_name_that_c_does_not_take_is_refused(tiny_built, tmp_path, name, reason):
    with pytest.raises(UsageError, match=reason) as caught:
        export_c(tiny_built.artifact, tmp_path / "out", name)
    assert str(caught.value).startswith(f"--name {name}: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("folder", "name"), [("tune.tuned", "model_tune"), ("3d-net.tuned", "model_3d_net"), ("int", "model_int")]
)
def test_an_artifact_s_name_that_c_does_not_take_gets_a_prefix(tiny_built, tmp_path, folder, name):
    artifact = shutil.copytree(tiny_built.artifact, tmp_path / folder)
    out = export_c(artifact, tmp_path / "out")
    assert (out / f"lib/lib{name}.so").is_file()
    output_of([out / "selftest/selftest"], env=BARE)


def test_a_failed_export_leaves_nothing(tiny_built, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_cases", fail)
    with pytest.raises(ArtifactError, match="No space left on device"):
        export_c(tiny_built.artifact, tmp_path / "out", "tiny")
    assert list(tmp_path.iterdir()) == []


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
