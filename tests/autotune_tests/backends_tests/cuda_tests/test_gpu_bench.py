"""The bench for GPU machines says what is missing here in one sentence, and its table what it found there."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from research.gpu import __main__ as gpu_bench


def test_without_a_device_it_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(tvm, "cuda", tvm.cpu)
    monkeypatch.setattr(tvm.runtime.Device, "exist", False, raising=False)
    monkeypatch.setattr("sys.argv", ["gpu", "--out", str(tmp_path / "out")])
    assert gpu_bench.main() == 1
    assert capsys.readouterr().out == (
        "no CUDA device can be used here, so there is nothing to measure; run this on a machine with a GPU\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_peer_that_computes_something_else_is_told():
    def out(value: float):
        return lambda: [np.full((2, 2), value, np.float32)]

    assert gpu_bench.different({"ours": out(1.0), "torch": out(1.0001)}) == {}
    assert gpu_bench.different({"ours": out(1.0), "torch": out(1.1)}) == {"torch": pytest.approx(0.1, rel=1e-3)}


def test_the_table_has_ratios_and_failures():
    verified = {"verified": {"passed": True}}
    rows = [
        {"model": "a", "tuned": verified, "ms": {"ours": 1.0, "torch": 2.0}, "missing": ["onnxruntime: not installed"]},
        {"model": "b", "tuned": verified, "ms": {"ours": 1.0, "torch": 8.0}, "different": {"torch": 0.1}},
        {"model": "c", "tuned": {"error": "no kernel"}},
    ]
    lines = gpu_bench.table(rows)
    assert "torch / ours, geometric mean: 4.000" in lines
    assert "  without onnxruntime: not installed" in lines
    assert any(line.endswith("match, torch differs by 1.0e-01") for line in lines)
    assert any(line.startswith("c ") and line.endswith("no kernel") for line in lines)
