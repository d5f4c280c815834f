"""Small artifacts in parts, of untuned kernels: a perceptron for two batches, and a model in three segments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from autotune.artifact.composite import write_composite
from autotune.artifact.directory import read_artifact
from autotune.artifact.fallback_file import interface_of
from autotune.artifact.make_plan import make_plan
from autotune.artifact.manifest import SEGMENTS, SHAPES
from autotune.backends.cpu.cpu_build import build_artifact
from autotune.importer.load import load_model
from autotune.importer.onnx_model.open_axes import open_interface
from autotune.importer.program import import_program, simplify
from autotune.measure.local_measurer import LocalMeasurer
from tests.autotune_tests.tiny import build_untuned, save_tiny, target
from tests.models import save
from tuning_logs.sql_store import memory_log

BATCHES = (1, 8)


@dataclass(frozen=True)
class Built:
    """An artifact in parts and the ONNX file of the whole model."""

    model: Path
    artifact: Path


def two_batches(folder: Path, measurer: LocalMeasurer) -> Built:
    """A perceptron for ``BATCHES`` rows; calls of other batches may be padded and split."""
    model = folder / "tiny_open_batch.onnx"
    save("tiny_open_batch", model)
    return _in_batches(folder, model, measurer)


def pairs(folder: Path, measurer: LocalMeasurer, factor: int = 1) -> Built:
    """left (batch, 6) and right (batch, 6) → sums (batch, 5), for ``BATCHES`` rows.

    Of whole numbers all results are exact, so every way to compute them gives the same bits. ``factor`` is in the
    weights and in the kernels, so that kernels of one artifact with weights of another give what neither does.
    """
    rng = np.random.default_rng(0)
    weights = [(2 * factor - 1) * rng.integers(1, 9, (6, 5)).astype(np.float32) for _ in range(2)]
    nodes = [
        helper.make_node("MatMul", ["left", "v"], ["l"]),
        helper.make_node("MatMul", ["right", "w"], ["r"]),
        helper.make_node("Add", ["l", "r"], ["s"]),
        helper.make_node("Mul", ["s", "factor"], ["sums"]),
    ]
    weights.append(np.float32(factor))
    graph = helper.make_graph(
        nodes,
        "pairs",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 6]) for name in ("left", "right")],
        [helper.make_tensor_value_info("sums", TensorProto.FLOAT, ["batch", 5])],
        [
            numpy_helper.from_array(np.asarray(weight), name)
            for weight, name in zip(weights, ("v", "w", "factor"), strict=True)
        ],
    )
    model = folder / "pairs.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
    return _in_batches(folder, model, measurer)


def _in_batches(folder: Path, model: Path, measurer: LocalMeasurer) -> Built:
    """The artifact of a model whose inputs have an open first size, for ``BATCHES`` of it."""
    inputs = {value.name: value.type.tensor_type.shape.dim[1].dim_value for value in onnx.load(model).graph.input}
    artifacts = []
    for number, rows in enumerate(BATCHES):
        shapes = {name: (rows, size) for name, size in inputs.items()}
        program = import_program(simplify(load_model(model, shapes)), target())
        plan = make_plan(program.tasks, program.spaces, target(), memory_log())
        build_artifact(folder / f"batch-{number}", program, plan, model, measurer)
        artifacts.append(read_artifact(folder / f"batch-{number}"))
    interface = open_interface(
        onnx.load(model),
        [[(s.name, s.shape, s.dtype) for s in artifact.inputs] for artifact in artifacts],
        [[(s.name, s.shape, s.dtype) for s in artifact.outputs] for artifact in artifacts],
    )
    interface = replace(interface, padded=frozenset({"batch"}), split=frozenset({"batch"}))
    parts = [artifact.path for artifact in artifacts]
    write_composite(folder / "batches.tuned", SHAPES, parts, interface, {"model": model.name})
    return Built(model, folder / "batches.tuned")


def three_segments(folder: Path, measurer: LocalMeasurer) -> Built:
    """data → tuned → scores, features; ONNX Runtime → root, where; tuned → means."""
    first = save_tiny(folder / "first.onnx", two_outputs=True)
    root, where = _value("root", 1, 32, 8, 8), _value("where", 2, None, kind=TensorProto.INT64)
    nodes = [helper.make_node("Sqrt", ["features"], ["root"]), helper.make_node("NonZero", ["scores"], ["where"])]
    second = folder / "second.onnx"
    onnx.save(_model(nodes, [_value("features", 1, 32, 8, 8), _value("scores", 1, 10)], [root, where]), second)
    third = folder / "third.onnx"
    means = _value("means", 1, 32, 1, 1)
    onnx.save(_model([helper.make_node("GlobalAveragePool", ["root"], ["means"])], [root], [means]), third)
    parts = [build_untuned(first, folder / "first", measurer), second, build_untuned(third, folder / "third", measurer)]
    outputs = [means, where, _value("scores", 1, 10)]
    whole = onnx.load(first)
    whole.graph.node.extend([*nodes, *onnx.load(third).graph.node])
    del whole.graph.output[:]
    whole.graph.output.extend(outputs)
    onnx.save(whole, folder / "whole.onnx")
    write_composite(folder / "segments.tuned", SEGMENTS, parts, interface_of(whole), {"model": "whole.onnx"})
    return Built(folder / "whole.onnx", folder / "segments.tuned")


def rows(count: int) -> dict[str, NDArray[np.float32]]:
    """A feed of the perceptron."""
    return {"rows": np.random.default_rng(count).standard_normal((count, 24)).astype(np.float32)}


def data() -> dict[str, NDArray[np.float32]]:
    """A feed of the model in segments."""
    return {"data": np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32)}


def _value(name: str, *shape: int | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
