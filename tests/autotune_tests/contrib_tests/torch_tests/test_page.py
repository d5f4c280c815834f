"""The code of docs/pytorch.md works."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; pip install ./autotune/contrib/torch")

from tests.test_readme import ROOT, blocks  # noqa: E402


def test_the_code_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    examples = blocks((ROOT / "docs" / "pytorch.md").read_text(), "python")
    assert len(examples) == 3
    for block in examples:
        exec(block, names)  # as one script
    torch.testing.assert_close(names["second"], names["first"], rtol=1e-3, atol=1e-4)
    assert names["scores"].shape == (1, 10)
    assert (tmp_path / "sizes.tuned" / "part-1").is_dir()
