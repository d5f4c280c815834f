"""Inputs and outputs of the ONNX files in an artifact."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from autotune.artifact.fallback_file import interface_of, read_fallback
from schedules.vocabulary.errors import ArtifactError
from tests.autotune_tests.tiny import tiny_model


def test_what_is_no_tensor_has_no_known_type():
    value = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2])
    graph = helper.make_graph([], "g", [value], [value])
    (spec,) = interface_of(helper.make_model(graph)).inputs
    assert (spec.shape, spec.dtype) == (("?",), "?")


def test_the_interface_of_a_model_leaves_out_weights():
    model = tiny_model()
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [32, 16, 3, 3]))  # as old files do
    interface = interface_of(model)
    assert [(spec.name, spec.shape, spec.dtype) for spec in interface.inputs] == [("data", (1, 16, 8, 8), "float32")]
    assert interface.knows_outputs()


def test_a_fallback_partition_says_what_it_reads_and_what_kinds_of_nodes_it_has(tmp_path):
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Odd", ["x"], ["y"], domain="my")], "g", value[:1], value[1:])
    onnx.save(helper.make_model(graph), tmp_path / "fallback-0.onnx")
    interface, operators = read_fallback(tmp_path / "fallback-0.onnx")
    assert [spec.name for spec in (*interface.inputs, *interface.outputs)] == ["x", "y"]
    assert operators == ("my::Odd",)


def test_what_is_no_onnx_file_is_refused(tmp_path):
    (tmp_path / "fallback-0.onnx").write_bytes(b"\xff" * 64)
    with pytest.raises(ArtifactError, match="is no ONNX file"):
        read_fallback(tmp_path / "fallback-0.onnx")
