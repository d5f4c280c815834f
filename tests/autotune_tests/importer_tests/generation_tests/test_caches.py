"""Caches are recognised in every form that exporters write, and bound or refused."""

import onnx
import pytest

from autotune.importer.generation.caches import add_lengths, bind_caches, caches_of
from autotune.importer.generation.guess import generation_shapes
from autotune.importer.load import load_model
from autotune.importer.onnx_model.shapes import ATTENTION, LENGTHS
from autotune.importer.program import simplify
from autotune.options import Generation
from schedules.vocabulary.errors import UnsupportedError
from tests.models import save
from tests.models.language import save_language, tiny


@pytest.fixture
def opened(tmp_path):
    """The checked model of a name, at the shapes of single tokens."""

    def open_model(name, prompts=()):
        path = save_language(tiny(name), tmp_path / f"{name}.onnx")
        return load_model(path, generation_shapes(path, Generation(64, prompts))[0])

    return open_model


@pytest.mark.parametrize("name", ["llama_concat_32", "gpt2_scatter_32", "qwen_group_32"])
@pytest.mark.parametrize("prompts", [(), (8,)])
def test_every_attention_keeps_its_cache(opened, name, prompts):
    model = opened(name, prompts)
    caches = add_lengths(model)
    decoder = tiny(name)
    assert [cache.kind for cache in caches] == [decoder.cache] * 2 * decoder.layers
    names = [value.name for value in model.graph.input]
    assert names[caches[0].past] == "past_key_values.0.key"
    assert model.graph.output[caches[0].present].name == "present.0.key"
    simple = simplify(model)
    bound = bind_caches(simple, caches)
    assert {cache.capacity for cache in bound} == {64}
    assert [node.op_type for node in simple.graph.node].count(ATTENTION) == decoder.layers
    assert [value.name for value in simple.graph.output] == ["logits"]
    assert not {"Softmax", "ScatterElements", "GroupQueryAttention"} & {node.op_type for node in simple.graph.node}
    assert simple.graph.input[-1].name == LENGTHS


def test_a_model_without_caches(tmp_path):
    model = load_model(save("tiny_mlp", tmp_path / "mlp.onnx"), {})
    assert caches_of(model) == ()
    with pytest.raises(UnsupportedError, match=r"keeps no cache that is known.*leave --generate out"):
        add_lengths(model)


def test_a_cache_that_something_else_reads(opened):
    model = opened("llama_concat_32")
    model.graph.node.append(onnx.helper.make_node("Abs", ["past_key_values.0.key"], ["seen"], "spy"))
    model.graph.output.append(onnx.helper.make_tensor_value_info("seen", onnx.TensorProto.FLOAT, [1, 2, 63, 16]))
    caches = add_lengths(model)
    simple = simplify(model)
    with pytest.raises(UnsupportedError, match=r"also read by Abs.*leave --generate out"):
        bind_caches(simple, caches)


def test_a_cache_of_halves(opened):
    model = opened("llama_concat_32")
    next(v for v in model.graph.input if "past" in v.name).type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    with pytest.raises(UnsupportedError, match="is not of 32-bit floats"):
        add_lengths(model)
