"""What the zoo says of a model, without the models."""

import json
from collections import Counter

import onnx
from onnx import TensorProto, helper

from autotune.importer.onnx_model.input_shapes import ASSUMED_NOTE
from autotune.validation.verdict import Verdict
from tests.autotune_tests.tiny import save_tiny
from tests.zoo import untuned
from tests.zoo.__main__ import END, ahead, main, page, strangers_page, tried
from tests.zoo.exports import exports
from tests.zoo.quantised import CONVERTERS, WANTED
from tests.zoo.strangers import strangers
from tests.zoo.trial import FALLBACK, REFUSED, RIGHT, WRONG, Outcome, assumed, parsed
from tests.zoo.tuned import Tuned, built, tuned


def test_shapes_are_those_that_the_import_assumes():
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["?", 8]) for name in ("x", "a b", "y")]
    nodes = [helper.make_node("Concat", ["x", "a b"], ["y"], axis=0)]
    model = helper.make_model(helper.make_graph(nodes, "g", values[:2], values[2:]))
    assert assumed(model) == ()
    model.metadata_props.add(
        key=ASSUMED_NOTE, value="m.onnx: open sizes are taken as --input x:1x3 --input 'a b:1x128' ('x' is n x 3); for"
    )
    assert assumed(model) == ("x:1x3", "a b:1x128")
    assert parsed(assumed(model)) == {"x": (1, 3), "a b": (1, 128)}


def test_a_model_with_an_open_size_is_imported_in_a_process_of_its_own(tmp_path):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["length", 8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    path = tmp_path / "one.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    outcome = tried(path)
    assert (outcome.kind, outcome.nodes, outcome.inputs) == ("whole", 1, ("x:128x8",))
    (tmp_path / "two.onnx").write_bytes(b"nothing")
    assert tried(tmp_path / "two.onnx").kind == "refused"


def test_a_model_is_tuned_and_verified_by_the_commands(tmp_path):
    path = save_tiny(tmp_path / "a.onnx")
    result = tuned(path, "whole", (), "instant", 0)
    assert result.right
    assert result.tuned_ms > 0
    text = page({"a": Outcome("a", "whole", tuned=vars(result))})
    assert "1 of 1 tuned models (`--effort instant`) match ONNX Runtime, and 0 were compared." in text
    assert f"| {result.seconds:.0f} | {result.tuned_ms:.3g} | – | – | – |" in text


def test_a_model_that_cannot_be_tuned_says_why(tmp_path):
    (tmp_path / "a.onnx").write_bytes(b"nothing")
    result = tuned(tmp_path / "a.onnx", "whole", (), "instant", 0)
    assert not result.right
    assert "exit 1: " in result.message or "exit 2: " in result.message
    assert "- **a**: exit" in page({"a": Outcome("a", "whole", tuned=vars(result))})


def test_the_page_counts_and_says_why_a_model_is_not_whole():
    outcomes = [Outcome("a", "whole", nodes=3), Outcome("b", "fallback", "operator X is not supported")]
    text = page({outcome.name: outcome for outcome in outcomes})
    assert "| 2 | 1 | 1 | 0 | 0 |" in text
    assert "- **b**: operator X is not supported" in text


def test_the_page_counts_who_is_as_fast_as_the_better_of_both():
    both = {"onnxruntime": 2.0, "openvino": 4.0}
    by_name = {
        "a": Tuned("instant", True, "", 7.4, tuned_ms=2.0, speed=both, apart_ns=[40.2, 190]),
        "b": Tuned("instant", True, tuned_ms=0.1, speed={"onnxruntime": 0.5}),
        "c": Tuned("instant", True, tuned_ms=1.0, speed={}),
    }
    text = page({name: Outcome(name, "whole", tuned=vars(result)) for name, result in by_name.items()})
    assert "| 7 | 2 | 2.00 | 4.00 | 40, 190 |" in text
    assert "| 0 | 0.1 | 0.50 | – | – |" in text
    words = "1 of 2 are at least as fast as the better of both: 1.00 times in the geometric mean"
    assert f"{words}, and 2.00 times for the 1 that take at least 0.2 ms." in text
    assert ahead([]) == ""


def test_what_was_written_behind_the_table_is_kept(tmp_path, monkeypatch):
    path, results = tmp_path / "page.md", tmp_path / "results.jsonl"
    path.write_text(f"old\n{END}\n\n## By hand\n")
    results.write_text(json.dumps(vars(Outcome("a", "whole", nodes=3))) + "\n")
    monkeypatch.setattr("sys.argv", ["zoo", str(tmp_path), "--results", str(results), "--page", str(path)])
    main()
    text = path.read_text()
    assert "| a | 3 |" in text
    assert "old" not in text
    assert text.endswith(f"|\n{END}\n\n## By hand\n")


def test_every_export_has_a_name_of_its_own():
    names = [name for name, _ in exports()]
    assert len(names) == len(set(names)) >= 60


def test_strangers_are_in_no_other_list():
    names = [name.removesuffix(".ts").removesuffix(".dyn") for name, _ in strangers()]
    others = {name.removesuffix(".ts").removesuffix(".dyn").removesuffix("Model") for name, _ in exports()}
    assert len(names) == len(set(names)) >= 100
    assert not others & {name.removesuffix("Model") for name in names}
    kinds = Counter(name.split(".")[0] for name in names)
    assert kinds["timm"] >= 40
    assert kinds["transformers"] >= 40
    assert kinds["own"] >= 20


def test_a_model_is_built_with_first_guesses_and_verified(tmp_path):
    result = built(save_tiny(tmp_path / "a.onnx"), "whole", ())
    assert result.right
    assert result.bound == "tolerance"
    outcomes = [Outcome("a", "whole", nodes=7, tuned=vars(result)), Outcome("b", "refused", "operator X; do Y")]
    outcomes += [Outcome("c", "fallback", "operator Z", tuned=vars(result))]
    outcomes += [Outcome("d", "whole", tuned=vars(Tuned("instant", False, "wrong: max abs 3")))]
    assert [outcome.verdict for outcome in outcomes] == [RIGHT, REFUSED, FALLBACK, WRONG]
    text = strangers_page({outcome.name: outcome for outcome in outcomes})
    assert "| 4 | 2 | 1 | 1 | 1 | 1 |" in text
    assert "| a | 7 | 0.0 | right |" in text
    assert "- **b**: operator X; do Y" in text
    assert "- **d**: wrong: max abs 3" in text


def test_outputs_that_differ_from_the_reference_are_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(untuned, "compare_session", lambda session, reference: Verdict("onnxruntime", 3.0, 3.0, False))
    result = untuned.untuned(save_tiny(tmp_path / "a.onnx"), ())
    assert not result.right
    assert result.message.startswith("wrong: ")


def test_what_is_quantised_is_exported_and_can_be_converted():
    assert {*WANTED} <= {name for name, _ in exports()}
    assert {kind for kinds in WANTED.values() for kind in kinds} == {*CONVERTERS}


def test_a_quantiser_reads_random_inputs_and_its_model_is_whole(tmp_path):
    CONVERTERS["qdq"](save_tiny(tmp_path / "a.onnx"), tmp_path / "a.qdq.onnx")
    kinds = {node.op_type for node in onnx.load(tmp_path / "a.qdq.onnx").graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= kinds
    assert [path.name for path in sorted(tmp_path.glob("*"))] == ["a.onnx", "a.qdq.onnx"]
    assert tried(tmp_path / "a.qdq.onnx").kind == "whole"
