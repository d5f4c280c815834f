"""An artifact of a plan is written once, and again only if it is another one or damaged."""

from autotune.artifact.directory import read_artifact
from autotune.backends.cpu.cpu_build import build_artifact, is_built
from tests.autotune_tests.tiny import tiny_program


def test_what_is_there_is_not_built_again_unless_damaged(tiny_built, measurer, tmp_path):
    program, plan = tiny_program(tiny_built.model), read_artifact(tiny_built.artifact).plan
    out = tmp_path / "out"
    assert not is_built(out, program, plan)
    assert build_artifact(out, program, plan, tiny_built.model, measurer)
    assert is_built(out, program, plan)
    assert not build_artifact(out, program, plan, tiny_built.model, measurer)
    (out / "weights.bin").write_bytes(b"damaged")
    assert not is_built(out, program, plan)


def test_the_model_file_is_recorded(tiny_built):
    provenance = read_artifact(tiny_built.artifact).provenance
    assert provenance["model"] == tiny_built.model.name
    assert len(provenance["sha256"]) == 64
