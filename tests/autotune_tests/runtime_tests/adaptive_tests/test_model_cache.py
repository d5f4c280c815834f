"""A model's artifact is cached by the model's bytes, and readable by nobody else's doing."""

import os

import pytest

from autotune.interface import OpenSpec
from autotune.runtime.adaptive.model_cache import ModelCache

SPECS = ((OpenSpec("x", ("batch", 3, "?"), "float32"),), (OpenSpec("y", ("batch",), "float32"),))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "m.onnx").write_bytes(b"a model")
    return ModelCache(tmp_path / "m.onnx", 1)


def test_the_folder_depends_on_the_model_and_the_threads(cache, tmp_path):
    assert ModelCache(tmp_path / "m.onnx", 1).folder == cache.folder
    (tmp_path / "other.onnx").write_bytes(b"a model")
    assert ModelCache(tmp_path / "other.onnx", 1).folder == cache.folder
    (tmp_path / "m.onnx").write_bytes(b"b model")
    assert ModelCache(tmp_path / "m.onnx", 1).folder != cache.folder


def test_what_is_kept_is_read_again(cache):
    assert cache.read_specs() is None
    cache.make()
    cache.write_specs(*SPECS)
    cache.write_routes("seal", [[[1, 16], "kernels", 2.0]])
    assert cache.read_specs() == SPECS
    assert cache.read_routes("seal") == [[[1, 16], "kernels", 2.0]]
    assert cache.read_routes("another") is None


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"inputs": [[1]], "outputs": []}', b"\xff"])
def test_what_is_damaged_is_not_there(cache, damage):
    cache.make()
    for name in ("interface.json", "routes.json"):
        (cache.folder / name).write_bytes(damage)
        os.chmod(cache.folder / name, 0o600)
    assert cache.read_specs() is None
    assert cache.read_routes("seal") is None


def test_a_folder_that_cannot_be_written_is_no_error_later(cache):
    cache.write_specs(*SPECS)
    assert cache.read_specs() is None
