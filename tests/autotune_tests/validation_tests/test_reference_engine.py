"""The reference engine's latency, and runs where it cannot be had."""

import importlib.util

import pytest

from autotune.events import ReferenceTimed
from autotune.interface import TensorSpec
from autotune.validation import reference_engine
from autotune.validation.bench_process import EngineTimes
from schedules.vocabulary.errors import MeasureError
from tests.autotune_tests.tiny import tiny_model

INPUTS = (TensorSpec("data", (1, 16, 8, 8), "float32"),)


def test_the_median_of_all_runs_is_taken(monkeypatch):
    asked = []

    def timed(name, model, feed, threads):
        asked.append((name, feed["data"].shape, threads))
        return EngineTimes(name, "1.0", "fp32", [[3e-3, 1e-3], [2e-3]])

    monkeypatch.setattr(reference_engine, "time_alone", timed)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    latency = reference_engine.reference_latency(tiny_model(), INPUTS, 2, 0)
    assert latency == ReferenceTimed("onnxruntime", "1.0", 2e-3)
    assert asked == [("onnxruntime", (1, 16, 8, 8), 2)]


def test_an_engine_that_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(reference_engine, "time_alone", lambda *_: pytest.fail("timed it"))
    assert reference_engine.reference_latency(tiny_model(), INPUTS, 1, 0) is None


def test_an_engine_that_fails_is_a_warning(monkeypatch, caplog):
    def fail(*_):
        raise MeasureError("it died")

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(reference_engine, "time_alone", fail)
    assert reference_engine.reference_latency(tiny_model(), INPUTS, 1, 0) is None
    assert "onnxruntime was not timed: it died" in caplog.text
