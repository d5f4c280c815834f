"""A model of a run is imported once, whatever parts the run has."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from autotune.artifact.manifest import KERNELS, SHAPES, kind_of
from autotune.builder import build_request
from autotune.builder.devices.cores_and_devices import CoresAndDevices
from autotune.graph.device_problem import Costs
from autotune.options import Options
from autotune.tuning.precisions.auto_precision import TRIES
from autotune.tuning.tune import tune
from tests.autotune_tests.fakes import fake_device
from tests.autotune_tests.tiny import save_tiny
from tests.autotune_tests.tuning_tests.test_fallback_partitions import FOREIGN, save_model
from tests.models import save
from tests.models.catalog import cached
from tests.simulated.stand_in import stand_in

Imports = Counter[tuple[str, ...]]


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Imports:
    """Count imports by content, shapes, kind of target and precision. Nothing is measured."""
    counted: Imports = Counter()
    real = build_request.import_model

    def counting(path: Path, inputs: Any, target: Any, **more: Any) -> Any:
        kind = replace(target, threads=1)
        counted[onnx.load(path).SerializeToString().hex(), str(inputs), kind.fingerprint, str(more)] += 1
        return real(path, inputs, target, **more)

    monkeypatch.setattr(build_request, "import_model", counting)
    fake_device(monkeypatch)
    return counted


def options(folder: Path, **more: Any) -> Options:
    return Options(**{"out": folder / "a.tuned", "log": folder / "t.db", "trials": 0, "threads": 2, **more})


def test_nothing_else_of_a_run_imports_models() -> None:
    packages = ("autotune.tuning", "autotune.builder", "autotune.backends")
    homes = [
        name for name, module in sys.modules.items() if name.startswith(packages) and hasattr(module, "import_model")
    ]
    assert homes == ["autotune.builder.build_request"]


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ({}, 1),
        ({"lanes": "auto"}, 1),
        ({"objective": "throughput", "streams": 2}, 1),
        ({"objective": "balanced", "streams": 2}, 1),
        ({"effort": "instant", "trials": None}, 1),
        ({"precision": "auto", "accuracy": 0.5}, 2 + TRIES),  # fp32, bf16 and mixtures are different programs
    ],
)
def test_one_model_is_imported_once(tmp_path: Path, imports: Imports, more: dict[str, Any], count: int) -> None:
    assert tune(save_tiny(tmp_path / "m.onnx"), options(tmp_path, **more)).verified
    assert set(imports.values()) == {1}
    assert len(imports) <= count


def test_each_set_of_shapes_is_imported_once_for_all_threads(tmp_path: Path, imports: Imports) -> None:
    save("tiny_open_batch", tmp_path / "m.onnx")
    sets = ({"rows": (1, 24)}, {"rows": (8, 24)})
    assert tune(tmp_path / "m.onnx", options(tmp_path, shapes=sets, objective="balanced", streams=2)).verified
    assert list(imports.values()) == [1, 1]


@pytest.mark.parametrize("counted", [False, True])
def test_a_model_with_one_assumed_set_is_imported_once(tmp_path: Path, imports: Imports, counted: bool) -> None:
    """The host counts in one of them, whose artifact stays a plain one."""
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    nodes += [helper.make_node("NonZero", ["y"], ["z"])] if counted else []
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "height", "width"])
    name, kind = ("z", TensorProto.INT64) if counted else ("y", TensorProto.FLOAT)
    y = helper.make_tensor_value_info(name, kind, None)
    graph, opset = helper.make_graph(nodes, "g", [x], [y]), [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "m.onnx")
    result = tune(tmp_path / "m.onnx", options(tmp_path))
    assert result.verified
    assert list(imports.values()) == [1]
    assert kind_of(result.artifact) == (KERNELS if counted else SHAPES)
    assert tune(tmp_path / "m.onnx", options(tmp_path)).verified  # once more, over what is there


def test_each_of_several_models_is_imported_once(tmp_path: Path, imports: Imports) -> None:
    models = [save_tiny(tmp_path / "a.onnx"), save_tiny(tmp_path / "b.onnx", seed=1, classes=12)]
    tune(models, options(tmp_path, out=tmp_path))
    assert list(imports.values()) == [1, 1]


def test_each_segment_between_fallback_partitions_is_imported_once(tmp_path: Path, imports: Imports) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node(FOREIGN, ["a"], ["b"], domain="com.microsoft"),
        helper.make_node("Conv", ["b", "w2"], ["y"], pads=[1, 1, 1, 1]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 12, 12])
    result = tune(save_model(tmp_path / "m.onnx", nodes, [output]), options(tmp_path))
    assert len(result.parts) == 2
    assert sorted(imports.values()) == [1, 1, 1]  # the whole, which cannot be, and two segments


@pytest.mark.parametrize("device", [True, False])
def test_a_model_and_its_subgraphs_are_imported_once_for_each_kind_of_lane(
    tmp_path: Path, imports: Imports, monkeypatch: pytest.MonkeyPatch, device: bool
) -> None:
    stand_in(monkeypatch)
    if device:  # else they are bounds
        monkeypatch.setattr(CoresAndDevices, "costs", lambda *_: Costs((1.0, 1.0)))
    tune(cached("tiny_wide_deep"), options(tmp_path, lanes="cpu,sim:0", device=device))
    assert set(imports.values()) == {1}
    assert len(imports) > 2
