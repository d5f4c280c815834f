"""Graphs after public reports about neighbouring tools, imported whole and built, against ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest

from tests.autotune_tests.importer_tests.built import build, close
from tests.autotune_tests.importer_tests.stranger_graphs import GRAPHS


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_is_imported_whole_and_right(name, tmp_path):
    graph = GRAPHS[name]
    ours = build(graph.model(name), tmp_path)
    theirs = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    for feed in graph.inputs(name):
        outputs, expected = ours.run(None, feed), theirs.run(None, feed)
        assert close([np.asarray(output) for output in outputs], expected), {
            key: array.tolist() for key, array in feed.items()
        }
