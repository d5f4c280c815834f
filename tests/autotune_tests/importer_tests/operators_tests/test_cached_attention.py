"""What the kernel of attention cannot compute is refused by name."""

import pytest

from autotune.host.machine import host_target
from autotune.importer.generation.caches import add_lengths
from autotune.importer.generation.guess import generation_shapes
from autotune.importer.load import load_model
from autotune.importer.program import import_program, simplified
from autotune.options import Generation
from schedules.vocabulary.errors import UnsupportedError
from tests.models.language import LANGUAGE, TINY_SIZES, save_language, tiny

TARGET = host_target(2)


def imported(decoder, folder):
    path = save_language(decoder, folder / "model.onnx")
    model = load_model(path, generation_shapes(path, Generation(64, ()))[0])
    caches = add_lengths(model)
    return import_program(simplified(model, TARGET), TARGET, caches=caches)


def test_one_kernel_per_shape_of_attention(tmp_path):
    program = imported(tiny("qwen_group_32"), tmp_path)
    (task,) = (task for task in program.tasks if task.name.startswith("attention"))
    assert task.weight == tiny("qwen_group_32").layers
    assert len(program.caches) == 2 * task.weight
    assert "tune.past_lengths" not in [spec.name for spec in program.inputs]
    assert [spec.name for spec in program.outputs][1] == "present.0.key"


def test_heads_that_are_no_whole_vectors(tmp_path):
    decoder = LANGUAGE["llama_concat_32"](**{**TINY_SIZES, "width": 32, "heads": 4})
    with pytest.raises(UnsupportedError, match="heads of 8 elements; they must be a multiple of 16"):
        imported(decoder, tmp_path)
