"""Kernels between bit patterns of narrow formats and numbers, against NumPy's own (``ml_dtypes``)."""

import ml_dtypes
import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper

from autotune.importer.conversion.narrow import encoded
from autotune.importer.conversion.operator_catalog import import_graph
from autotune.importer.load import load_model
from autotune.importer.program import simplify
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written

FORMATS = {
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "BFLOAT16": ml_dtypes.bfloat16,
}


def interpreted(nodes, source, target, feed, folder):
    """The output of a model compiled by TVM's Relax virtual machine without any schedule."""
    model = model_of(nodes, [source], [], opset=19)
    model.graph.output.append(target)
    module = import_graph(encoded(simplify(load_model(written(model, folder)))))
    executable = tvm.compile(module, tvm.target.Target("llvm"))
    return tvm.relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(feed)).numpy()


@pytest.mark.parametrize("name", FORMATS)
def test_every_pattern_is_decoded(name, tmp_path):
    dtype, kind = FORMATS[name], TensorProto.DataType.Value(name)
    codes = np.arange(65536 if name == "BFLOAT16" else 256, dtype=np.uint16 if name == "BFLOAT16" else np.uint8)
    cast = [helper.make_node("Cast", ["x"], ["y"], "cast", to=TensorProto.FLOAT)]
    decoded = interpreted(cast, value("x", codes.shape, kind), value("y", codes.shape), codes, tmp_path)
    np.testing.assert_array_equal(decoded, codes.view(dtype).astype(np.float32))


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_within_the_range_are_rounded_to_the_nearest(name, tmp_path):
    dtype, kind = FORMATS[name], TensorProto.DataType.Value(name)
    largest = float(ml_dtypes.finfo(dtype).max)
    x = np.random.default_rng(0).uniform(-1, 1, 500).astype(np.float32) * np.float32(min(largest, 1e4))
    cast = [helper.make_node("Cast", ["x"], ["y"], "cast", to=kind)]
    rounded = interpreted(cast, value("x", x.shape), value("y", x.shape, kind), x, tmp_path)
    np.testing.assert_array_equal(rounded.view(dtype).astype(np.float32), x.astype(dtype).astype(np.float32))
