"""The benchmark page: its markers are there, and its table says what was measured."""

import pytest

from research.__main__ import PAGE
from research.page import Row, replaced, summary, table

MACHINE = {"cpu": {"model": "Some CPU", "threads": 2, "peak_gflops": 425.4, "memory_gb_s": 57.2}}


def engine(name, p50, precision="fp32"):
    return {"name": name, "version": "1", "precision": precision, "p50_ms": p50}


def row(model="net", others=0.0, fp32=2.0, auto=1.0, default="bf16"):
    peers = {"onnxruntime": 3.0, "openvino": 4.0, "openvino-default": 1.5}
    bench = {
        "rounds": 20,
        "engines": [
            engine("tune", fp32),
            *(engine(name, p50, default if name == "openvino-default" else "fp32") for name, p50 in peers.items()),
            engine("build/net.auto.tuned", auto, "bf16"),
        ],
        "speedup": {name: p50 / fp32 for name, p50 in peers.items()},
        "speedup_quartiles": {name: [p50 / fp32 - 0.05, p50 / fp32 + 0.05] for name, p50 in peers.items()},
        "others_cpu": others,
    }
    return Row(model, {"elapsed_s": 61.7}, {"elapsed_s": 44.2}, bench)


def test_a_line_per_model():
    lines = table([row(), row("other")], MACHINE, "make bench").splitlines()
    assert "Some CPU, 2 threads, 425 GFLOPS" in lines[0]
    assert "`make bench`; medians of at most 20 rounds" in lines[2]
    assert lines[6] == ("| net | 62 | 44 | 2 | 1 | 3 | 4 | 1.5 | 1.50 (1.45–1.55) | 2.00 (1.95–2.05) | 1.50 |")
    assert len({line.count("|") for line in lines[4:8]}) == 1


def test_engines_say_the_precisions_that_they_chose():
    lines = table([row("net"), row("quantised", default="int8")], MACHINE, "make bench").splitlines()
    assert "openvino 1 (fp32), openvino-default 1 (bf16, int8), with auto (bf16)." in lines[1]


def test_losses_are_counted():
    fp32, auto, default = summary([row(), row(fp32=6.0)])
    assert "0.50 to 1.50 times as fast, 0.87 in the geometric mean; slower: 1 of 2" in fp32
    assert "1.50 to 1.50 times as fast, 1.50 in the geometric mean; slower: 0 of 2" in auto
    assert "0.25 to 0.75 times as fast, 0.43 in the geometric mean; slower: 2 of 2" in default


def test_a_disturbed_run_is_marked():
    text = table([row(others=0.3)], MACHINE, "make bench")
    assert "| net \\* |" in text
    assert "disturbed" in text
    assert "disturbed" not in table([row()], MACHINE, "make bench")


def test_only_what_is_between_the_markers_of_the_section_changes():
    page = PAGE.read_text()
    for section in ("Zen 4", "Zen 5"):
        once = replaced(page, section, "new table")
        assert once.count("new table") == 1
        assert replaced(once, section, "new table") == once
        before = page.partition(f"## {section}")[0]
        assert once.startswith(before)
    for section in ("Method", "no such"):
        with pytest.raises(ValueError, match=section):
            replaced(page, section, "x")
