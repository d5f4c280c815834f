from __future__ import annotations

import os
import threading

import autotune
from tests.autotune_tests.tiny import save_tiny


def test_no_thread_of_a_run_is_importing_while_the_model_s_import_is_forked(tmp_path, monkeypatch):
    """A fork inherits the locks of modules that another thread is importing, and nobody ever opens them there."""
    before, beside, fork = set(threading.enumerate()), [], os.fork

    def forked() -> int:
        beside.extend(set(threading.enumerate()) - before)
        return fork()

    monkeypatch.setattr(os, "fork", forked)
    options = autotune.Options(budget_s=0.5, log=tmp_path / "log.db", out=tmp_path / "a.tuned")
    autotune.tune(save_tiny(tmp_path / "a.onnx"), options)
    assert beside == []
