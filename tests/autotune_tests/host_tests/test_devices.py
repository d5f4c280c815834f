"""``tune devices`` reports this machine's CPU and its measured roofline."""

import json

import pytest

from autotune.host import devices
from autotune.host.machine import host_target, read_host
from autotune.host.roofline import Roofline


@pytest.fixture(autouse=True)
def known_roofline(monkeypatch):
    monkeypatch.setattr(devices, "measure_roofline", lambda target: Roofline(100.0, 10.0, 50.0, 1 << 20, 200.0, 400.0))


def test_data_and_lines_are_of_this_machine(monkeypatch):
    monkeypatch.setattr(devices, "cuda_devices", list)
    report = devices.report_devices()
    cpu = json.loads(json.dumps(report.data))["cpu"]
    assert (cpu["model"], cpu["threads"]) == (read_host().model, host_target().threads)
    assert (cpu["peak_gflops"], cpu["memory_gb_s"], cpu["l2_gb_s"]) == (100.0, 10.0, 50.0)
    assert cpu["target"] == host_target().fingerprint
    assert report.data["gpus"] == []
    assert any("100 GFLOPS fp32, 200 bf16, 400 Gop/s int8, 10.0 GB/s of 64 MiB" in line for line in report.lines)
    assert report.lines[-1].split() == ["GPU", "none"]


def test_gpus_are_named(monkeypatch):
    class Gpu:
        device_name, compute_version = "H200", "9.0"

    monkeypatch.setattr(devices, "cuda_devices", lambda: [Gpu(), Gpu()])
    report = devices.report_devices()
    assert report.data["gpus"] == [{"device": f"cuda:{n}", "name": "H200", "arch": "9.0"} for n in (0, 1)]
    assert "cuda:1: H200 (compute capability 9.0)" in report.lines[-1]
