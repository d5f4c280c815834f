"""Import in a fork: the same program as here, and one line for every file made to hurt."""

from __future__ import annotations

import faulthandler
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.artifact.identity import identity
from autotune.artifact.make_plan import make_plan
from autotune.importer.guarded_import import count_nodes, import_memory, import_model, load_checked
from autotune.importer.import_worker import Limits
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from schedules.vocabulary.errors import ModelError, UsageError
from tests import hostile
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written
from tests.autotune_tests.tiny import save_tiny, target, tiny_model
from tuning_logs.sql_store import memory_log


def test_the_fork_brings_back_what_importing_here_would(tmp_path: Path) -> None:
    path = save_tiny(tmp_path / "tiny.onnx", two_outputs=True)
    here = import_program(simplify(load_model(path)), target())
    model, program = import_model(path, {}, target())
    assert model == load_model(path)
    assert (program.tasks, program.programs, program.kernels) == (here.tasks, here.programs, here.kernels)
    assert (program.inputs, program.outputs) == (here.inputs, here.outputs)
    assert {key: space.knobs for key, space in program.spaces.items()} == {
        key: space.knobs for key, space in here.spaces.items()
    }
    plan = make_plan(here.tasks, here.spaces, target(), memory_log())
    assert identity(program, plan) == identity(here, plan)
    program.weights[0][...] = 0  # ours to change


def test_shapes_are_given_through_the_fork(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, tmp_path / "open.onnx")
    _, program = import_model(tmp_path / "open.onnx", {}, target())
    assert program.inputs[0].shape == (1, 16, 8, 8)
    assert [record.getMessage() for record in caplog.records if "--input data:8x16x8x8" in record.getMessage()]
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    onnx.save(model, tmp_path / "open.onnx")
    _, program = import_model(tmp_path / "open.onnx", {}, target())
    assert program.inputs[0].shape == (1, 16, 224, 8)
    assert "are taken as --input data:1x16x224x8 (" in caplog.messages[-1]
    with pytest.raises(UsageError, match="names no input"):
        import_model(tmp_path / "open.onnx", {"image": (1, 16, 8, 8)}, target())
    _, program = import_model(tmp_path / "open.onnx", {"data": (1, 16, 8, 8)}, target())
    assert program.inputs[0].shape == (1, 16, 8, 8)
    assert count_nodes(load_checked(tmp_path / "open.onnx", {"data": (1, 16, 8, 8)})) == 5


@pytest.fixture
def no_child_left() -> None:
    """Fails if a fork is still there afterwards."""
    before = set(psutil.Process().children())
    yield
    assert set(psutil.Process().children()) == before


@pytest.mark.usefixtures("no_child_left")
@pytest.mark.parametrize("name", hostile.ATTACKS)
def test_a_file_made_to_hurt_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    message = hostile.refusal(hostile.prepared(name, tmp_path))
    assert message
    assert "\n" not in message
    assert "crashed" not in message
    assert len(message) < 700


def test_there_are_enough_of_them() -> None:
    assert len(hostile.ATTACKS) >= 40


@pytest.mark.usefixtures("no_child_left")
def test_what_the_limits_are_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_tiny(tmp_path / "tiny.onnx")

    def importing(patience: float) -> str:
        limits = Limits(cpu_s=1.0, s_per_node=0.0, patience=patience, memory_bytes=200 << 20)
        with pytest.raises(ModelError) as caught:
            import_model(path, {}, target(), limits)
        return str(caught.value)

    def spin(*_: object) -> None:
        while True:
            pass

    def hoard(*_: object) -> None:
        hoarded = []
        while True:
            hoarded.append(bytearray(1 << 26))

    def sleep(*_: object) -> None:
        import time

        time.sleep(60)

    def recurse(*arguments: object) -> None:
        recurse(*arguments)

    for misbehave, words in (
        (spin, "takes more time than a model of its size may"),
        (hoard, "needs more than 200 MiB"),
        (sleep, "did not end within"),
        (lambda *_: os.abort(), r"importing it crashed \(SIGABRT\)"),
        (lambda *_: 1 / 0, "cannot be imported: ZeroDivisionError"),
        (recurse, "nests too deep"),
    ):
        monkeypatch.setattr("autotune.importer.guarded_import.simplified", misbehave)
        assert re.search(words, importing(1.0 if misbehave is sleep else 60.0)), words


@pytest.mark.usefixtures("no_child_left")
def test_a_crash_names_the_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(model: onnx.ModelProto, *_: object) -> None:
        if any(node.op_type == "Relu" for node in model.graph.node):
            faulthandler.disable()  # pytest's would print where the fork was
            os.kill(os.getpid(), signal.SIGSEGV)

    monkeypatch.setattr("autotune.importer.guarded_import.import_program", crash)
    path = save_tiny(tmp_path / "tiny.onnx")
    with pytest.raises(ModelError, match=r"crashed \(SIGSEGV\) at operator Relu \(node '.*'\); export") as caught:
        import_model(path, {}, target())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
def test_four_bit_weights_in_blocks_are_imported(kind: int, tmp_path: Path) -> None:
    weights = [
        helper.make_tensor("w", kind, [64, 32], np.arange(64 * 32) % 8),
        helper.make_tensor("s", TensorProto.FLOAT, [2, 32], np.full(64, 0.5)),
        helper.make_tensor("z", kind, [2, 32], np.arange(64) % 8),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    model = model_of(nodes, [value("x", (4, 64))], ["y"], opset=21)
    model.graph.initializer.extend(weights)
    path = written(model, tmp_path)
    _, program = import_model(path, {}, target())
    assert [task.template for task in program.tasks] == ["low_bit_matmul"]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_nothing_outside_the_model_s_folder_is_opened(tmp_path: Path) -> None:
    names = [name for name in hostile.ATTACKS if "external data" in name or "file" in name]
    (tmp_path / "all").mkdir()
    script = (
        "import sys; from pathlib import Path; from tests import hostile\n"
        "for number, name in enumerate(sys.argv[2:]):\n"
        "    folder = Path(sys.argv[1]) / str(number); folder.mkdir()\n"
        "    path = hostile.prepared(name, folder)\n"
        "    Path('/dev/null').stat(); print(hostile.refusal(path))\n"
    )
    log = tmp_path / "strace.log"
    command = ["strace", "-f", "-qq", "-e", "trace=open,openat,openat2", "-o", str(log), sys.executable, "-c", script]
    subprocess.run([*command, str(tmp_path / "all"), *names], check=True, capture_output=True)
    opened = re.findall(r'open\w*\([^"]*"([^"]*)"(?!.*O_WRONLY).*\) = \d', log.read_text())
    assert any(path.endswith("model.onnx") for path in opened)
    assert not [path for path in opened if path.endswith(hostile.SECRET_NAME)]
    assert not [path for path in opened if path in ("/etc/passwd", "/proc/self/environ")]
    inside = [path for path in opened if path.startswith(str(tmp_path / "all"))]
    assert {Path(path).parent.name for path in inside} <= {"model"}


def test_large_arrays_come_back_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    model = hostile.model_of([hostile.node("MatMul", "x w")], {"w": rng.random((4, 300_000), np.float32)})
    path = hostile.saved(model, tmp_path)
    here = import_program(simplify(load_model(path)), target())
    _, program = import_model(path, {}, target())
    assert all(np.array_equal(a, b) for a, b in zip(here.weights, program.weights, strict=True))
    assert sum(array.nbytes for array in program.weights) >= 4 * 300_000 * 4


def test_a_small_file_may_be_allowed_more_memory(tmp_path: Path) -> None:
    """A constant of 800 MB that five numbers of the file say; it is summed up, so the program is small again."""
    shape = numpy_helper.from_array(np.array([200, 1000, 1000], np.int64), "shape")
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["large"]),
        helper.make_node("ReduceSum", ["large"], ["total"], keepdims=0),
        helper.make_node("Add", ["x", "total"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [shape])
    path = tmp_path / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with pytest.raises(ModelError, match="--import-memory 4GB"):
        import_model(path, {}, target())
    with import_memory(6 << 30):
        import_model(path, {}, target())


def test_importing_takes_one_and_a_half_times_the_weights(tmp_path: Path) -> None:
    """Products of 128 MB of weights at odd places in the file; 74 MB are for all else, beyond TVM's own 226 MB."""
    rng = np.random.default_rng(0)
    weights = {f"w{number}": rng.random((2048, 2048), np.float32) for number in range(8)}
    names = ["x", *(f"t{number}" for number in range(7)), "y"]
    nodes = [helper.make_node("MatMul", [names[number], f"w{number}"], [names[number + 1]]) for number in range(8)]
    path = tmp_path / "wide.onnx"
    onnx.save(model_of(nodes, [value("x", (16, 2048))], ["y"], weights), path)
    script = """
import resource, sys
from pathlib import Path
from autotune.importer.guarded_import import import_model
from tests.autotune_tests.tiny import target

machine = target()
resident = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
import_model(Path(sys.argv[1]), {}, machine)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - int(resident.split()[1]))
"""
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    size = sum(array.nbytes for array in weights.values())
    assert 0.9 * size <= int(done.stdout.splitlines()[-1]) << 10 <= 1.5 * size + 74e6
