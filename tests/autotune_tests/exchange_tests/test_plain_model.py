"""The runner of exported artifacts: memory that kernels can read, and whole models."""

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autotune.exchange.export import export
from autotune.exchange.plain_model import ALIGNMENT, Model, aligned
from tests.autotune_tests.tiny import build_untuned

ALONE = """
import sys
sys.modules.update(dict.fromkeys(("autotune", "schedules", "search", "costmodels", "tuning_logs")))
import numpy as np
from plain_model import Model
np.savez("outputs.npz", **Model(".").run({"x": np.load("x.npy")}))
"""


def test_copies_are_aligned():
    array = np.arange(7, dtype=np.float32)[::2]
    copy = aligned(array)
    assert copy.ctypes.data % ALIGNMENT == 0
    assert copy.flags.c_contiguous
    assert np.array_equal(copy, array)


@pytest.mark.parametrize(("place", "index", "expected"), [("input", 0, 1), ("weight", 0, 2), ("arena", 16, 3)])
def test_operands_are_found_where_they_lie(place, index, expected):
    model = Model.__new__(Model)
    model.weights = [np.full(4, 2, np.float32)]
    model.arena = np.zeros(64, np.uint8)
    model.arena[16:32].view(np.float32)[:] = 3
    operand = {"place": place, "index": index, "shape": [2, 2], "dtype": "float32"}
    tensor = model.tensor(operand, [np.ones(4, np.float32)])
    assert tensor.shape == (2, 2)
    assert (tensor == expected).all()


def test_a_model_runs_where_this_program_is_not(tmp_path, measurer):
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Identity", ["x"], ["same"])]
    inputs, y, same = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y", "same"))
    graph = helper.make_graph(nodes, "g", [inputs], [y, same])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    artifact = build_untuned(tmp_path / "m.onnx", tmp_path / "m.tuned", measurer)
    out = export(artifact, tmp_path / "exported")
    x = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
    np.save(out / "x.npy", x)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE], cwd=out, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    with np.load(out / "outputs.npz") as outputs:
        assert np.array_equal(outputs["y"], np.maximum(x, 0))
        assert np.array_equal(outputs["same"], x)
