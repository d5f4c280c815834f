"""Sessions at the end of a process, across forks and while their artifact is replaced: no crash, no hang, no mixing."""

import subprocess
import sys

import pytest

from tests.autotune_tests.composites import pairs, three_segments

TIMEOUT_S = 2400.0


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory, tiny_built, measurer):
    """One set of shapes; two sets, joined; segments with ONNX Runtime."""
    folders = [tmp_path_factory.mktemp(name) for name in ("batches", "segments")]
    return [
        tiny_built.artifact,
        pairs(folders[0], measurer).artifact,
        three_segments(folders[1], measurer).artifact,
    ]


def check(*arguments):
    """Run the program, which must find nothing wrong, and nor may Python or the system."""
    command = [sys.executable, "-m", "tests.autotune_tests.runtime_tests.lifetimes", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("count", [24, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_process_ends_while_threads_run(artifacts, count):
    check("exits", count, *artifacts)


@pytest.mark.parametrize("count", [9, pytest.param(200, marks=pytest.mark.slow)])
def test_a_busy_process_forks(artifacts, count):
    check("forks", count, *artifacts)


@pytest.mark.parametrize("count", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_an_artifact_is_replaced_while_it_is_used(tmp_path, measurer, count):
    built = []
    for factor in (1, 2):
        (tmp_path / str(factor)).mkdir()
        built.append(pairs(tmp_path / str(factor), measurer, factor).artifact)
    check("replacements", count, *built, tmp_path / "place")
