"""``tune tasks``, ``kernels``, ``devices`` and ``verify`` on a tiny model."""

import json

import pytest

from tests.autotune_tests.cli_tests.lines import FAST, one_line
from tests.autotune_tests.tiny import save_tiny


def test_verification_failure_exits_4_and_still_says_how_far(answer, tiny, tmp_path):
    other = save_tiny(tmp_path / "other.onnx", seed=1, two_outputs=True)
    code, out, err = answer("verify", tiny.artifact, other, "--json")
    assert code == 4
    assert json.loads(out)["passed"] is False
    assert one_line(err)
    assert "differs from onnxruntime" in err


def test_kernels_are_shown_in_every_form(answer, tiny_built):
    code, out, _ = answer("kernels", tiny_built.artifact, "--json")
    first = json.loads(out)["kernels"][0]
    signs = {"tir": "T.prim_func", "llvm": "define", "asm": "ret", "loop": "products"}
    for form, sign in signs.items():
        for task in (first["key"], first["key"][:6], first["name"]):
            code, out, _ = answer("kernels", tiny_built.artifact, "--task", task, "--emit", form)
            assert code == 0
            assert first["key"] in out.splitlines()[0]
            assert sign in out


def test_wrong_kernels_are_told(answer, tiny_built):
    code, _, err = answer("kernels", tiny_built.artifact, "--task", "fused_conv2d_ad_relu")
    assert code == 2
    assert "did you mean 'fused_conv2d_add_relu'?" in err
    code, _, err = answer("kernels", tiny_built.artifact, "--emit", "ptx")
    assert code == 2
    assert "kernels for llvm have no form 'ptx'; give tir or llvm or asm or loop" in err
    code, _, err = answer("kernels", tiny_built.artifact, "--emit", "hex")
    assert code == 2
    assert "choose one of asm, cuda, llvm, loop, ptx, tir" in err
    code, _, err = answer("kernels", tiny_built.artifact, "--task", "")
    assert code == 2
    assert "several" in err


def test_devices(answer):
    code, out, _ = answer("devices", "--json")
    cpu = json.loads(out)["cpu"]
    assert code == 0
    assert cpu["threads"] >= 1
    assert cpu["peak_gflops"] > 0
    code, out, _ = answer("devices")
    assert code == 0
    assert "GFLOPS" in out


def test_tasks_tell_where_the_best_record_came_from(answer, faked):
    answer("run", "tiny.onnx", "--log", "t.db", *FAST)
    code, out, _ = answer("tasks", "tiny.onnx", "--threads", "1", "--log", "t.db", "--json")
    report = json.loads(out)
    assert code == 0
    known = [task for task in report["tasks"] if task["best_us"] is not None]
    assert known
    for task in known:
        assert task["source"]["host"]
        assert task["source"]["when"] > 1e9
        assert task["roofline_share"] == pytest.approx(task["bound_us"] / task["best_us"])
    assert all(task["missing"] for task in report["tasks"] if task["tunable"] and task["best_us"] is None)


def test_tasks_without_any_log_make_none(answer, faked, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    code, out, _ = answer("tasks", "tiny.onnx", "--threads", "1")
    assert code == 0
    assert "no record" in out
    assert not (tmp_path / "data").exists()
