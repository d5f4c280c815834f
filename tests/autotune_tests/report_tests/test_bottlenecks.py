"""What limits kernels, in sentences."""

import json
import re
from dataclasses import replace

from autotune.report.bottlenecks import explain, explain_lines, summary
from autotune.report.facts import read_facts
from autotune.tuning.run_history import read_history, write_history


def test_words_name_limit_and_remedy(told):
    facts = read_facts(told)
    said = explain(facts)
    assert all(re.match(r"(arithmetic|memory|the L2 caches): ", bottleneck.limit) for bottleneck in said)
    assert all(bottleneck.advice and not bottleneck.advice.endswith(".") for bottleneck in said)
    assert "trials" in summary(facts)[0]
    assert any(line.startswith("1. ") for line in explain_lines(facts))
    assert json.dumps([bottleneck.to_data() for bottleneck in said])


def test_a_kernel_beyond_its_bound_disproves_it(told):
    (run,) = read_history(told)
    write_history(told, (replace(run, tasks=tuple(replace(story, bound_s=0.0) for story in run.tasks)),))
    facts = read_facts(told)
    disproved = [bottleneck for bottleneck in explain(facts) if bottleneck.row.tunable]
    assert disproved
    for bottleneck in disproved:
        assert bottleneck.row.bound_share is None
        assert "more than was measured" in bottleneck.limit
        assert "%" not in bottleneck.limit
