"""An If of which one branch cannot run at the model's input shapes becomes the other branch, and says so."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from autotune.importer.conversion.dead_branches import notes_of
from autotune.importer.guarded_import import import_model
from autotune.importer.load import load_model
from tests.autotune_tests.importer_tests.onnx_cases import model_of, value, written
from tests.autotune_tests.tiny import target

X = np.arange(6, dtype=np.float32).reshape(1, 6)


def body(name, rows):
    """A branch that multiplies x by a matrix of as many rows, behind an If whose condition is known."""
    inner = [
        helper.make_graph(
            [helper.make_node(kind, ["x"], [f"{name}_{kind}"])], kind, [], [value(f"{name}_{kind}", None)]
        )
        for kind in ("Neg", "Abs")
    ]
    weight = numpy_helper.from_array(np.full((rows, 2), rows, np.float32), f"{name}_w")
    nodes = [
        helper.make_node("Shape", ["x"], [f"{name}_shape"]),
        helper.make_node("Gather", [f"{name}_shape", "one"], [f"{name}_size"]),
        helper.make_node("Equal", [f"{name}_size", "six"], [f"{name}_known"]),
        helper.make_node("If", [f"{name}_known"], [f"{name}_x"], then_branch=inner[0], else_branch=inner[1]),
        helper.make_node("MatMul", [f"{name}_x", f"{name}_w"], [f"{name}_y"]),
    ]
    return helper.make_graph(nodes, name, [], [value(f"{name}_y", None)], [weight])


def choosing(then, other, condition="rate", metadata=None):
    """A model that multiplies x by a matrix of ``then`` rows if ``rate`` is 16 and of ``other`` rows otherwise."""
    branches = {"then_branch": body("a", then), "else_branch": body("b", other)}
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["size"]),
        helper.make_node("Equal", [condition, "sixteen"], ["c"]),
        helper.make_node("If", ["c"], ["y"], **branches),
    ]
    constants = {"one": np.array(1), "six": np.array(6), "sixteen": np.array(16)}
    inputs = [value("x", (1, 6)), value("rate", (), TensorProto.INT64)]
    model = model_of(nodes, inputs, ["y"], constants)
    helper.set_model_props(model, metadata or {})
    return model


@pytest.mark.parametrize(("then", "other"), [(6, 5), (5, 6)])
def test_the_branch_that_can_run_is_always_taken(tmp_path, then, other, caplog):
    path = written(choosing(then, other), tmp_path)
    loaded = load_model(path)
    assert not any(node.op_type == "If" and node.name == "y" for node in loaded.graph.node)
    dead, taken = ("else_branch", "then_branch") if then == 6 else ("then_branch", "else_branch")
    (note,) = notes_of(loaded)
    assert note.startswith(
        f"operator If (node 'y'): its {dead} cannot run at these input shapes, so its {taken} is always taken: "
    )
    assert "op_type:MatMul" in note
    session = onnxruntime.InferenceSession(loaded.SerializeToString(), providers=["CPUExecutionProvider"])
    for rate in (8, 16):
        (y,) = session.run(None, {"x": X, "rate": np.array(rate)})
        np.testing.assert_array_equal(y, -X @ np.full((6, 2), 6, np.float32))
    _, program = import_model(path, {}, target())
    assert [spec.name for spec in program.inputs] == ["x", "rate"]
    assert note in caplog.text


@pytest.mark.parametrize(
    ("then", "other", "condition"), [(6, 6, "rate"), (5, 5, "rate"), (6, 5, "size")], ids=["both", "none", "shapes"]
)
def test_other_choices_stay(tmp_path, then, other, condition):
    loaded = load_model(written(choosing(then, other, condition), tmp_path))
    assert any(node.op_type == "If" and node.name == "y" for node in loaded.graph.node)
    assert not list(notes_of(loaded))


def test_a_file_cannot_say_that_a_branch_is_taken(tmp_path):
    loaded = load_model(written(choosing(6, 6, metadata={"tune.branch": "all is well", "by": "me"}), tmp_path))
    assert [(entry.key, entry.value) for entry in loaded.metadata_props] == [("by", "me")]
    assert isinstance(loaded, onnx.ModelProto)
