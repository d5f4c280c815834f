"""Every model by name, and where its file is kept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import onnx

from tests.models import cnn, quantised, recurrent, tiny, transformer
from tests.models.halves import in_halves, islands
from tests.models.light import LIGHT, light

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / "build" / "models"
"""Model files, made on demand and never committed."""

Make = Callable[[int], onnx.ModelProto]

TINY: dict[str, Make] = {
    "tiny_cnn": tiny.tiny_cnn,
    "tiny_odd": tiny.tiny_odd,
    "tiny_strided": tiny.tiny_strided,
    "tiny_grouped": tiny.tiny_grouped,
    "tiny_branches": tiny.tiny_branches,
    "tiny_gated": tiny.tiny_gated,
    "tiny_open_batch": tiny.tiny_open_batch,
    "tiny_open_length": tiny.tiny_open_length,
    "tiny_open_size": tiny.tiny_open_size,
    "tiny_mlp": partial(transformer.mlp, layers=3, width=64),
    "tiny_encoder": partial(transformer.encoder, layers=2, width=32, heads=2, sequence=16),
    "tiny_mt_dnn": partial(transformer.mt_dnn, layers=1, width=32, heads=2, sequence=8),
    "tiny_unet": partial(cnn.unet, size=32, width=8, levels=2),
    "tiny_qdq": partial(quantised.qdq_cnn, size=16, width=16),
    "tiny_lstm": partial(recurrent.single, "LSTM", steps=6, hidden=16),
    "tiny_gru": partial(recurrent.single, "GRU", steps=6, hidden=16),
    "tiny_wide_deep": partial(recurrent.wide_deep, size=32, steps=6, hidden=32, ffn=64, cnn=8),
    "tiny_siamese": partial(recurrent.siamese_lstm, steps=6, hidden=16),
}
"""Models for tests: milliseconds to build and to run."""

MODELS: dict[str, Make] = {
    **{name: partial(light, name) for name in LIGHT},
    "resnet50_b8": partial(light, "resnet50", batch=8),
    "resnet18": cnn.resnet18,
    "mobilenet_v2": cnn.mobilenet_v2,
    "mobilenet_v3": cnn.mobilenet_v3,
    "efficientnet_b0": cnn.efficientnet_b0,
    "unet": cnn.unet,
    "encoder": transformer.encoder,
    "encoder_b8": partial(transformer.encoder, batch=8),
    "mt_dnn": transformer.mt_dnn,
    "mlp": transformer.mlp,
    "qdq_cnn": partial(quantised.qdq_cnn, size=112, width=64),
    "lstm": partial(recurrent.single, "LSTM"),
    "gru": partial(recurrent.single, "GRU"),
    "wide_deep": recurrent.wide_deep,
    "siamese_cnn": recurrent.siamese_cnn,
    "siamese_lstm": recurrent.siamese_lstm,
    **TINY,
}
"""Name → function of a seed. A name ending in ``_b8`` is the same model with a batch of 8."""

HALVES: dict[str, Make] = {
    "islands": islands,
    **{f"{name}_bf16": lambda seed, name=name: in_halves(MODELS[name](seed)) for name in MODELS},
}
"""Models of bfloat16, which ONNX Runtime does not run as they are; ``_bf16`` is the same model in that type."""


def build(name: str, seed: int = 0) -> onnx.ModelProto:
    """The model ``name`` with random weights from ``seed``.

    Raises:
        KeyError: if there is no such model.
    """
    model = {**MODELS, **HALVES}[name](seed)
    onnx.checker.check_model(model)
    return model


def save(name: str, path: Path, seed: int = 0) -> Path:
    """Write model ``name`` to ``path``, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    onnx.save(build(name, seed), partial)
    partial.replace(path)
    return path


@cache
def digest() -> str:
    """Short hash of the sources that make the models: a cached file of older sources is never used."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(HERE.glob("*.py")))).hexdigest()[:8]


def cached(name: str) -> Path:
    """Path of model ``name`` (seed 0) in the cache folder, made if it is not there; an outdated one is removed."""
    path = CACHE / f"{name}-{digest()}.onnx"
    if not path.exists():
        for old in CACHE.glob(f"{name}-{'[0-9a-f]' * 8}.onnx"):
            old.unlink(missing_ok=True)
        save(name, path)
    return path
