"""Shapes of decoders, guessed from names; what cannot be guessed is said in one line."""

import onnx
import pytest

from autotune.importer.generation.guess import generation_shapes
from autotune.options import Generation
from schedules.vocabulary.errors import UsageError
from tests.models import save
from tests.models.language import save_language, tiny


def test_a_set_per_bucket_and_per_number_of_sequences(tmp_path, caplog):
    path = save_language(tiny("llama_concat_32"), tmp_path / "model.onnx")
    sets = generation_shapes(path, Generation(64, (8, 16), (1, 4)))
    tokens = [shapes["input_ids"] for shapes in sets]
    assert tokens == [(1, 8), (1, 16), (1, 1), (4, 1)]
    assert {shapes["attention_mask"][1] for shapes in sets} == {64}
    assert [shapes["past_key_values.1.value"][2] for shapes in sets] == [56, 48, 63, 63]
    assert "guessed: tokens are 'input_ids', caches are 4 inputs" in caplog.text


def test_a_cache_of_fixed_length_says_how_long(tmp_path):
    path = save_language(tiny("gpt2_scatter_32"), tmp_path / "model.onnx")
    (shapes,) = generation_shapes(path, Generation(2048, ()))
    assert shapes["past_key_values.0.key"] == (1, 4, 64, 16)
    with pytest.raises(UsageError, match="prompts of 128 positions do not go into a cache of 64"):
        generation_shapes(path, Generation(2048, (128,)))


def test_names_that_say_nothing(tmp_path):
    path = save_language(tiny("llama_concat_32"), tmp_path / "model.onnx")
    model = onnx.load(path, load_external_data=False)
    next(v for v in model.graph.input if v.name == "position_ids").type.tensor_type.shape.dim[1].dim_param = "n"
    onnx.save(model, path)
    with pytest.raises(UsageError, match=r"the size n of input 'position_ids' \(axis 1\) cannot be guessed"):
        generation_shapes(path, Generation(64, (8,)))


def test_a_model_without_caches(tmp_path):
    with pytest.raises(UsageError, match="keeps no cache that is known"):
        generation_shapes(save("tiny_mlp", tmp_path / "mlp.onnx"), Generation())
