"""Where models lie is kept on this machine by the hash of their file, and not in artifacts."""

from autotune.artifact.known_models import remember_model, remembered_model
from autotune.artifact.manifest import MANIFEST, sha256


def test_a_model_is_found_by_its_hash(tiny_built, tmp_path):
    before = (tiny_built.artifact / MANIFEST).read_bytes()
    digest = sha256(tiny_built.model)
    assert remembered_model(digest, tmp_path) is None
    remember_model(tiny_built.artifact, tiny_built.model, tmp_path)
    assert remembered_model(digest, tmp_path) == tiny_built.model.resolve()
    remember_model(tiny_built.artifact, tmp_path / "later.onnx", tmp_path)
    assert remembered_model(digest, tmp_path) == tmp_path.resolve() / "later.onnx"
    assert [path.name for path in (tmp_path / "models").iterdir()] == [digest]
    assert (tiny_built.artifact / MANIFEST).read_bytes() == before


def test_a_cache_that_cannot_be_written_is_no_error(tiny_built, tmp_path):
    (tmp_path / "models").write_text("in the way")
    remember_model(tiny_built.artifact, tiny_built.model, tmp_path)
    assert remembered_model(sha256(tiny_built.model), tmp_path) is None
