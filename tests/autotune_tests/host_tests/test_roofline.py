"""The peak is remembered per machine; what was remembered badly is measured again. No test judges the figures."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray

from autotune.host.machine import host_target
from autotune.host.roofline import DAY_S, TIMES, Roofline, fma_kernels, measure_roofline, roofline_by
from schedules.target import Target
from schedules.templates.instructions.dots import U8S8


def test_it_is_measured_a_few_times_and_the_largest_kept(tmp_path: Path) -> None:
    target = host_target(threads=1)
    peak = measure_roofline(target, tmp_path)
    assert min(peak.gflops, peak.memory_gb_s, peak.l2_gb_s, peak.bf16_gflops, peak.int8_gops) > 0
    (path,) = tmp_path.iterdir()
    assert target.fingerprint in path.name
    path.write_text('{"gflops": 1.0, "memory_gb_s": 1e9, "l2_gb_s": 3.0, "l2_bytes": 4}')
    again = measure_roofline(target, tmp_path)
    assert again.gflops > 1
    assert again.memory_gb_s == 1e9
    path.write_text(json.dumps({**asdict(Roofline(1.0, 2.0, 3.0, 4)), "times": TIMES}))
    assert measure_roofline(target, tmp_path) == Roofline(1.0, 2.0, 3.0, 4)
    yesterday = path.stat().st_mtime - DAY_S
    os.utime(path, (yesterday, yesterday))
    assert measure_roofline(target, tmp_path).gflops > 1


def test_of_several_tilings_the_fastest_counts() -> None:
    narrow = Target(kind="llvm", isa="avx2", mcpu="haswell", threads=1)
    operations = [flop for _, _, flop in fma_kernels(narrow, U8S8)]
    assert len(operations) == 3
    assert len(fma_kernels(narrow)) == 1

    def best_s(_: object, arrays: list[NDArray[Any]]) -> float:
        out = arrays[-1]
        return 1e-9 if out.shape[1:3] == (4, 2) else 1.0

    peak = roofline_by(narrow, best_s)
    assert peak.int8_gops == operations[2]
    assert peak.gflops < 1e3


def test_what_another_process_found_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = host_target(threads=1)
    measure_roofline(target, tmp_path)
    (path,) = tmp_path.iterdir()

    def measured_beside_another(target: Target) -> Roofline:
        path.write_text(json.dumps({**asdict(Roofline(9e9, 1.0, 9e9, 4)), "times": 3}))
        return Roofline(1.0, 9e9, 1.0, 4)

    monkeypatch.setattr("autotune.host.roofline._measure", measured_beside_another)
    assert measure_roofline(target, tmp_path) == Roofline(9e9, 9e9, 9e9, 4)
    assert json.loads(path.read_text())["times"] == 4
    assert list(tmp_path.iterdir()) == [path]


def test_a_broken_file_is_measured_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    target = host_target(threads=1)
    measure_roofline(target, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text('{"gflops": 1.0')
    assert measure_roofline(target, tmp_path).gflops > 0
    assert "measuring again" in caplog.text
    assert json.loads(path.read_text())["times"] == 1


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert measure_roofline(host_target(threads=1), blocked).gflops > 0
    assert "cannot be written" in caplog.text


def test_the_roofline_is_the_larger_of_compute_and_traffic() -> None:
    peak = Roofline(gflops=100.0, memory_gb_s=10.0, l2_gb_s=50.0, l2_bytes=1000)
    assert peak.bound_s(1000, 1) == pytest.approx(1e-8)
    assert peak.bound_s(1, 1000) == pytest.approx(2e-8)
    assert peak.bound_s(1, 1001) == pytest.approx(1.001e-7)


def test_a_kernel_is_bound_by_the_peak_of_its_own_type() -> None:
    peak = Roofline(100.0, 10.0, 50.0, 1000, bf16_gflops=190.0, int8_gops=400.0)
    assert peak.peak(("float32", "float32", "float32")) == 100.0
    assert peak.peak(("bfloat16", "bfloat16", "float32", "bfloat16")) == 190.0
    assert peak.peak(("uint8", "int8", "int32", "uint8")) == 400.0
    assert peak.peak(("uint8", "float32")) == 100.0
    assert peak.peak(("float32", "uint8", "float32", "float32")) == 400.0
    assert peak.peak(("float32", "int8", "float32", "int32", "float32")) == 400.0
    assert peak.bound_s(4000, 1, ("uint8", "int8", "uint8")) == pytest.approx(1e-8)
