"""The benchmark page: its markers are there, and its table says what was measured."""

import pytest

from research.__main__ import PAGE
from research.page import Row, replaced, table

MACHINE = {"cpu": {"model": "Some CPU", "threads": 2, "peak_gflops": 425.4, "memory_gb_s": 57.2}}


def engine(name, p50, precision="fp32"):
    return {"name": name, "version": "1", "precision": precision, "p50_ms": p50}


def row(model="net", others=0.0):
    bench = {
        "rounds": 200,
        "engines": [engine("tune", 2.0), engine("onnxruntime", 3.0)],
        "speedup": {"onnxruntime": 1.5},
        "speedup_quartiles": {"onnxruntime": [1.45, 1.55]},
        "others_cpu": others,
    }
    return Row(model, "60s", {"measured_trials": 40, "reused_records": 2, "elapsed_s": 61.7}, bench)


def test_a_line_per_model():
    lines = table([row(), row("other")], MACHINE, "make bench").splitlines()
    assert "Some CPU, 2 threads, 425 GFLOPS" in lines[0]
    assert "`make bench`; medians of 200 rounds" in lines[1]
    assert lines[-2] == "| net | 60s | 62 | 42 | 2.00 | 3.00 | 1.50 (1.45–1.55) |"
    assert len({line.count("|") for line in lines[3:]}) == 1


def test_both_forms_of_openvino_have_columns_and_say_their_precisions():
    rows = [row("net"), row("quantised")]
    for each, precision in zip(rows, ("bf16", "int8"), strict=True):
        for name, p50, own in (("openvino", 4.0, "fp32"), ("openvino-default", 1.0, precision)):
            each.bench["engines"].append(engine(name, p50, own))
            each.bench["speedup"][name] = p50 / 2
            each.bench["speedup_quartiles"][name] = [p50 / 2, p50 / 2]
    lines = table(rows, MACHINE, "make bench").splitlines()
    assert "openvino 1 (fp32), openvino-default 1 (bf16, int8)." in lines[0]
    assert "| openvino ms | openvino-default ms |" in lines[3]
    assert "| 4.00 | 1.00 |" in lines[-1]


def test_a_disturbed_run_is_marked():
    text = table([row(others=0.3)], MACHINE, "make bench")
    assert "| net \\* |" in text
    assert "disturbed" in text
    assert "disturbed" not in table([row()], MACHINE, "make bench")


def test_only_what_is_between_the_markers_changes():
    page = PAGE.read_text()
    once = replaced(page, "new table")
    assert once.count("new table") == 1
    assert replaced(once, "new table") == once
    assert once.split("<!-- bench")[0] == page.split("<!-- bench")[0]
    with pytest.raises(ValueError, match="bench:begin"):
        replaced("no markers", "x")
