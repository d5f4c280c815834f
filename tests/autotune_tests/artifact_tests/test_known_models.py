"""Where models lie is kept on this machine by the hash of their file, and not in artifacts."""

import pytest

from autotune.artifact import known_models
from autotune.artifact.known_models import remember_model, remembered_model
from autotune.artifact.manifest import MANIFEST, sha256


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(known_models, "cache_folder", lambda: tmp_path)


def test_a_model_is_found_by_its_hash(tiny_built, tmp_path):
    before = (tiny_built.artifact / MANIFEST).read_bytes()
    digest = sha256(tiny_built.model)
    assert remembered_model(digest) is None
    remember_model(tiny_built.artifact, tiny_built.model)
    assert remembered_model(digest) == tiny_built.model.resolve()
    remember_model(tiny_built.artifact, tmp_path / "later.onnx")
    assert remembered_model(digest) == tmp_path.resolve() / "later.onnx"
    assert [path.name for path in (tmp_path / "models").iterdir()] == [digest]
    assert (tiny_built.artifact / MANIFEST).read_bytes() == before


def test_a_cache_that_cannot_be_written_is_no_error(tiny_built, tmp_path):
    (tmp_path / "models").write_text("in the way")
    remember_model(tiny_built.artifact, tiny_built.model)
    assert remembered_model(sha256(tiny_built.model)) is None
