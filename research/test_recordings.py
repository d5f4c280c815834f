"""The recorded data set: how old it is, what reading it takes, and the example of its page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.contrib.replay.trace import load_traces
from research.packing import TRACES
from schedules.template_sets import TEMPLATE_SETS
from tests.test_readme import ROOT, blocks

PAGE = (ROOT / "docs" / "replay.md").read_text()


def older_than_their_templates(path: Path) -> list[str]:
    """Templates whose version was raised since the tasks of the file were recorded: what their configs mean changed."""
    today = {str(template.name): int(template.version) for template in TEMPLATE_SETS["llvm"].templates}
    spaces = {trace.space for trace in load_traces(path).traces}
    return sorted({space.name for space in spaces if space.version < today[space.name]})


NAMES = [path.relative_to(TRACES).with_suffix("").as_posix() for path in sorted(TRACES.rglob("*.npz"))]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_which_recordings_are_older_than_their_templates(name: str) -> None:
    path = TRACES / f"{name}.npz"
    (row,) = re.findall(rf"^\| `{name}` \|.*\| ([^|]*) \|$", PAGE, re.MULTILINE)
    told = sorted(re.findall(r"`(\w+)`", row))
    assert told == older_than_their_templates(path), "record it anew (research/record.py), or say so in docs/replay.md"


def test_reading_and_replaying_needs_neither_tvm_nor_a_compiler() -> None:
    program = (
        "import sys\n"
        "from autotune.cli.main import main\n"
        f"assert main(['replay', {str(TRACES / 'softmax.npz')!r}, '--searcher', 'adaptive,random', '--allocator',\n"
        "             'share-per-second', '--evaluator', 'adaptive', '--seeds', '1', '--processes', '1']) == 0\n"
        "assert not {'tvm', 'onnx', 'onnxruntime'} & set(sys.modules)\n"
    )
    nothing = {"PATH": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=nothing, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_example_of_the_page_is_compared(tmp_path: Path) -> None:
    (program,) = blocks(PAGE, "python")
    (tmp_path / "mine.py").write_text(program)
    trace = str(TRACES / "softmax.npz")
    names = ["--searcher", "adaptive,mine:Nearby", "--allocator", "share-per-second,mine:Slowest", "--seeds", "1"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    command = [sys.executable, "-m", "autotune", "replay", trace, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "mine:Nearby" in done.stdout
    assert "mine:Slowest" in done.stdout
