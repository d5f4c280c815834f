"""A convolution, a pool and a matrix product that build in a second, and artifacts of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autotune.artifact.make_plan import make_plan
from autotune.backends.cpu.cpu_build import build_artifact
from autotune.host.machine import host_target
from autotune.importer.load import load_model
from autotune.importer.program import Program, import_program, simplify
from autotune.measure.local_measurer import LocalMeasurer
from schedules.target import Target
from tuning_logs.sql_store import memory_log

THREADS = 1


def tiny_model(seed: int = 0, two_outputs: bool = False, classes: int = 10) -> onnx.ModelProto:
    """data (1, 16, 8, 8) → conv 3×3, relu, global average pool, gemm → scores (1, ``classes``)."""
    rng = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 4, name)

    nodes = [
        helper.make_node("Conv", ["data", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["features"], name="relu"),
        helper.make_node("GlobalAveragePool", ["features"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "m"], ["scores"], name="gemm"),
    ]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, classes])]
    if two_outputs:
        outputs.append(helper.make_tensor_value_info("features", TensorProto.FLOAT, [1, 32, 8, 8]))
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 16, 8, 8])],
        outputs,
        [weight("w", 32, 16, 3, 3), weight("b", 32), weight("m", 32, classes)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def save_tiny(path: Path, seed: int = 0, two_outputs: bool = False, classes: int = 10) -> Path:
    """Write the model to ``path``."""
    onnx.save(tiny_model(seed, two_outputs, classes), path)
    return path


@cache
def target() -> Target:
    """This machine with one thread."""
    return host_target(THREADS)


def tiny_program(path: Path) -> Program:
    """The fused program of the model at ``path``."""
    return import_program(simplify(load_model(path)), target())


def build_untuned(path: Path, out: Path, measurer: LocalMeasurer) -> Path:
    """The artifact ``out`` of the model at ``path``, no kernel tuned; ``measurer`` compiles."""
    program = tiny_program(path)
    plan = make_plan(program.tasks, program.spaces, target(), memory_log())
    build_artifact(out, program, plan, path, measurer)
    return out
