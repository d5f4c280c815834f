"""The numbers of a report, from a made-up history."""

import pytest

from autotune.report.facts import read_facts, timeline


def test_the_timeline_is_one_inference(told):
    spans = timeline(read_facts(told))
    assert all(row is not None for row, _, _ in spans)
    assert [start for _, start, _ in spans] == pytest.approx([2e-5 * index for index in range(len(spans))])


def test_failures_are_counted_by_kind(told):
    assert read_facts(told).failures == {"timeout": 3, "wrong_result": 1}


def test_rows_are_sorted_by_share_and_add_up(told):
    facts = read_facts(told)
    shares = [row.share for row in facts.rows]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1.0)
    assert facts.trials == sum(row.trials for row in facts.rows)


def test_the_roofline_is_the_last_run_s(told):
    facts = read_facts(told)
    assert facts.roofline == facts.runs[-1].roofline
    assert all(row.bound_share is not None for row in facts.rows if row.tunable)


def test_the_kept_bench_is_used_unless_another_is_given(told):
    assert read_facts(told).bench["speedup"] == {"onnxruntime": 1.5, "openvino": 0.9}
    assert read_facts(told, {"speedup": {}}).bench == {"speedup": {}}


def test_artifacts_are_called_by_their_folders(told):
    """Paths tell artifacts of one name apart."""

    def bench(*names):
        engines = [{"name": name, "p50_ms": 1.0} for name in ("tune", *names)]
        return {"engines": engines, "speedup": dict.fromkeys(names, 1.5), "speedup_quartiles": {}}

    short = read_facts(told, bench("onnxruntime", "/somewhere/model.auto.tuned")).bench
    assert short["speedup"] == {"onnxruntime": 1.5, "model.auto.tuned": 1.5}
    assert [engine["name"] for engine in short["engines"]] == ["tune", "onnxruntime", "model.auto.tuned"]
    alike = bench("/one/model.tuned", "/other/model.tuned")
    assert read_facts(told, alike).bench == alike
