"""``tune verify --bisect``: sabotaged artifacts, whose wrong kernel or node it must name."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from autotune.artifact.make_plan import make_plan
from autotune.artifact.manifest import digest_of, sealed
from autotune.backends.cpu.cpu_build import build_artifact
from autotune.cli.main import main
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplify
from autotune.options import FP32
from autotune.validation import bisect as bisect_module
from autotune.validation.bisect import bisect, first_nodes
from tests.autotune_tests.tiny import build_untuned, target
from tests.models import save
from tuning_logs.sql_store import memory_log


@pytest.fixture(scope="module")
def residual(tmp_path_factory, measurer):
    """A model with a residual block, and its untuned artifact."""
    folder = tmp_path_factory.mktemp("bisect")
    model = save("tiny_cnn", folder / "model.onnx")
    program = import_program(simplify(load_model(model)), target())
    plan = make_plan(program.tasks, program.spaces, target(), memory_log())
    build_artifact(folder / "model.tuned", program, plan, model, measurer)
    return model, folder / "model.tuned"


def resealed(artifact):
    """The manifest after a change that pretends to be none."""
    manifest = artifact / "manifest.json"
    data = json.loads(manifest.read_text())
    data["sha256"] = {name: digest_of(artifact / name) for name in data["sha256"]}
    manifest.write_text(sealed(data))


def sabotage(artifact, out, change):
    """A copy whose weights were changed by ``change``."""
    copy = Path(shutil.copytree(artifact, out))
    entries = json.loads((copy / "manifest.json").read_text())["weights"]
    content = bytearray((copy / "weights.bin").read_bytes())
    change(content, entries)
    (copy / "weights.bin").write_bytes(content)
    resealed(copy)
    return copy


def test_a_right_artifact_has_no_culprit(residual):
    model, artifact = residual
    assert bisect(artifact, model) is None


def test_a_kernel_with_wrong_weights_is_named_by_its_nodes(residual, tmp_path, capsys):
    model, artifact = residual

    def double_a_late_convolution(content, entries):
        entry = max(entries, key=lambda e: (len(e["shape"]) == 6 and e["shape"][:2] == [1, 16], e["offset"]))
        count = int(np.prod(entry["shape"]))
        array = np.frombuffer(content, np.float32, count, entry["offset"]).copy() * 2
        content[entry["offset"] : entry["offset"] + array.nbytes] = array.tobytes()

    broken = sabotage(artifact, tmp_path / "broken", double_a_late_convolution)
    culprit = bisect(broken, model)
    assert culprit is not None
    assert culprit.kind == "kernel"
    named = " ".join(culprit.nodes)
    assert "Conv" in named or "Gemm" in named, culprit
    assert main(["verify", str(broken), str(model), "--bisect"]) == 4
    printed = capsys.readouterr().out
    assert "kernel call" in printed
    assert culprit.nodes[0] in printed


def test_a_wrong_import_is_named_by_its_node(residual, measurer, tmp_path, monkeypatch):
    """An importer that takes Softmax for LogSoftmax: every kernel agrees with its untuned build, and is wrong."""
    model, _ = residual

    def wrongly(simple, to, precision=FP32):
        for node in simple.graph.node:
            if node.op_type == "Softmax":
                node.op_type = "LogSoftmax"
        return import_program(simple, to, precision)

    program = wrongly(simplify(load_model(model)), target())
    plan = make_plan(program.tasks, program.spaces, target(), memory_log())
    build_artifact(tmp_path / "wrong.tuned", program, plan, model, measurer)
    monkeypatch.setattr(bisect_module, "import_program", wrongly)
    culprit = bisect(tmp_path / "wrong.tuned", model)
    assert culprit is not None
    assert culprit.kind == "import"
    assert "Softmax" in culprit.nodes[0]
    assert culprit.number == culprit.count


def test_inputs_that_are_indices_have_values_that_the_reference_runs(measurer, tmp_path):
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,6] x, int64[3] n) => (float[3,6] y) { y = Gather(x, n) }'
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    artifact = build_untuned(tmp_path / "m.onnx", tmp_path / "m.tuned", measurer)
    assert bisect(artifact, tmp_path / "m.onnx") is None


def test_cut_models_are_whole(residual):
    model, _ = residual
    simple = simplify(load_model(model))
    for count in range(1, len(simple.graph.node) + 1):
        cut = first_nodes(simple, count)
        onnx.checker.check_model(cut)
        assert len(cut.graph.node) == count
    assert [value.name for value in cut.graph.output] == [value.name for value in simple.graph.output]
