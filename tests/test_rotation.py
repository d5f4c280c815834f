"""Every slow test is in one group, and a run of a group runs that one alone."""

import re
import subprocess
import sys
from pathlib import Path

from tests.rotation import GROUPS, dealt, group_of, recorded

ROOT = Path(__file__).parents[1]

SAMPLE = """
import pytest

def test_quick():
    pass

@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_slow(number):
    pass
"""


def run_group(folder, group):
    """Ids of the tests that ran in ``group``, and the whole output."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.rotation", "-v", f"--rotation={group}", "--rootdir", folder]
    done = subprocess.run(
        [*command, "-c", "/dev/null", "-W", "ignore", folder], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return [line.split()[0] for line in done.stdout.splitlines() if "PASSED" in line], done.stdout + done.stderr


def test_a_run_is_of_one_group_and_names_its_tests(tmp_path):
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    names, said = run_group(str(tmp_path), 1)
    slow = [f"test_sample.py::test_slow[{number}]" for number in range(12)]
    mine = [node for node in slow if group_of(node, dealt(recorded())) == 1]
    assert [name.rpartition("/")[2] for name in names] == mine
    assert f"slow tests, group 1 of 0 to 4:\n  {len(mine)} of test_sample.py::test_slow" in said


def test_every_group_has_its_share_of_tests_without_an_entry():
    groups = [group_of(f"test_sample.py::test_slow[{number}]", {}) for number in range(100)]
    assert min(groups.count(group) for group in range(GROUPS)) >= 10


def test_a_group_that_does_not_exist_is_refused(tmp_path):
    assert "--rotation is 5; there are the groups 0 to 4" in run_group(str(tmp_path), GROUPS)[1]


def test_the_longest_are_dealt_evenly():
    seconds = {"a": 50.0, "b": 40.0, "c": 30.0, "d": 30.0, "e": 20.0, "f": 20.0}
    groups = dealt(seconds)
    totals = [sum(seconds[name] for name in groups if groups[name] == group) for group in range(GROUPS)]
    assert sorted(totals) == [30.0, 30.0, 40.0, 40.0, 50.0]


def test_an_entry_is_a_test_a_function_or_a_file():
    groups = {"a.py": 1, "a.py::f": 2, "a.py::f[x]": 3}
    numbers = [group_of(node, groups) for node in ("a.py::f[x]", "a.py::f[y]", "a.py::g", "a.py::C::f")]
    assert numbers == [3, 2, 1, 1]
    assert 0 <= group_of("b.py::f", groups) < GROUPS


def test_recorded_seconds_are_of_slow_tests_that_exist():
    for name in recorded():
        path, _, function = name.partition("[")[0].partition("::")
        text = (ROOT / path).read_text()
        marks = ("mark.slow", "@sampled")  # what is sampled has a slow form
        assert any(mark in text for mark in marks) or "simplify" in path  # whose models bring their mark along
        assert not function or f"def {function}(" in text


def test_every_group_ends_within_the_limit_of_ci():
    seconds = recorded()
    groups = dealt(seconds)
    totals = [sum(seconds[name] for name in groups if groups[name] == group) for group in range(GROUPS)]
    limit = re.search(r"^GROUP_S \?= (\d+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert limit is not None
    assert max(totals) <= int(limit[1])
