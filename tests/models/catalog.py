"""Every model by name, and where its file is kept."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import onnx

from tests.models.light import LIGHT, light

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / "build" / "models"
"""Model files, made on demand and never committed."""

MODELS: dict[str, Callable[[int], onnx.ModelProto]] = {name: functools.partial(light, name) for name in LIGHT}
"""Name → function of a seed."""


def build(name: str, seed: int = 0) -> onnx.ModelProto:
    """The model ``name`` with random weights from ``seed``.

    Raises:
        KeyError: if there is no such model.
    """
    model = MODELS[name](seed)
    onnx.checker.check_model(model)
    return model


def save(name: str, path: Path, seed: int = 0) -> Path:
    """Write model ``name`` to ``path``, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    onnx.save(build(name, seed), partial)
    partial.replace(path)
    return path


@functools.cache
def digest() -> str:
    """Short hash of the sources that make the models: a cached file of older sources is never used."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(HERE.glob("*.py")))).hexdigest()[:8]


def cached(name: str) -> Path:
    """Path of model ``name`` (seed 0) in the cache folder, made if it is not there."""
    path = CACHE / digest() / f"{name}.onnx"
    return path if path.exists() else save(name, path)
