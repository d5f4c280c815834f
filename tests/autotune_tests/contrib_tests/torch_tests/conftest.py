"""PyTorch is no dependency of the tests: 200 MB."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

MISSING = [name for name in ("torch", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]

collect_ignore = ["modules.py"]


@pytest.fixture(scope="package")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders of the user's caches and logs that all tests here share: building is slow."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield folder / "cache" / "tune-compiler"


@pytest.fixture(autouse=True)
def _modules(caches: Path) -> Iterator[None]:
    if MISSING:
        pytest.skip(f"{MISSING[0]} is not installed; pip install ./autotune/contrib/torch")
    import torch

    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
